"""Reads the only setting, ``DISTLOCK``: a dict of aliases, like ``DATABASES``.

Reading it never connects. `rules` finds mistakes, which `configuration` refuses.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from functools import cache
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from distlock.engine.hosts import joined
from distlock.engine.protocol import Configuration as Configuration
from distlock.exceptions import LockKeyError
from distlock.keys.templates import LONGEST_SHOWN
from distlock.text import secret

from .rules import is_prefix, problems


class _Unset(Enum):
    """A value that stays the same object in copies."""

    UNSET = "not given"


#: Means "not given" where None has a meaning (`timeout=None` waits for ever). Any, so that editors
#: show only what a user may give.
UNSET: Final[Any] = _Unset.UNSET


#: Changes each configuration; `distlock.testing` puts one here that names its own server.
adapted: Callable[[Configuration], Configuration] = lambda conf: conf  # noqa: E731 - a default


@cache
@secret
def configuration(alias: str = "default") -> Configuration:
    """Return the checked settings of `alias`.

    :raises ImproperlyConfigured: no such alias, or a value that cannot work
    """
    aliases = getattr(settings, "DISTLOCK", {"default": {}})
    if not isinstance(aliases, Mapping) or alias not in aliases:
        known = ", ".join(map(repr, aliases)) if isinstance(aliases, Mapping) else ""
        raise ImproperlyConfigured(f"DISTLOCK has no alias {alias!r}; it has: {known or 'none'}.")
    options = aliases[alias]
    for problem in problems(alias, options):
        if problem.is_serious():
            raise ImproperlyConfigured(f"{problem.msg} {problem.hint}")
    values: dict[str, Any] = {
        name.lower(): value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in options.items()
    }
    if "hosts" in values:
        values["hosts"] = joined(values["hosts"])
    values["namespace"] = values.get("namespace", Configuration.namespace).rstrip("/")
    values["auth"] = tuple((scheme, secret) for scheme, secret in values.get("auth") or ())
    return adapted(Configuration(alias=alias, **values))


@cache
def _key_prefix(alias: str) -> str:
    try:
        return configuration(alias).key_prefix
    except ImproperlyConfigured:  # a lock may be made at import: its first use raises
        return ""


def prefixed(key: str, using: str) -> str:
    """Return a key with the ``KEY_PREFIX`` of an alias as it is now: ``"tenant1:stock:7"``.

    :raises LockKeyError: the function that the setting names has returned no prefix
    """
    # A lock may be made before there are settings; its use sees to the prefix.
    path = prefix = _key_prefix(using) if settings.configured else ""
    if "." in path:
        prefix = import_string(path)()
        if not is_prefix(prefix):
            raise LockKeyError(
                f"{path}(), the KEY_PREFIX of the alias {using!r}, has returned {prefix!r:.80}. It "
                "must return a text of letters, digits and _ . -, such as the tenant's name, and "
                'one of its own where there is no tenant, such as "public".'
            )
    return f"{prefix}:{key}" if prefix else key


def refuse_other_prefix(key: str, using: str) -> None:
    """Raise if the lock of a whole key was made under another ``KEY_PREFIX`` than that of now.

    :raises LockKeyError: as by an object that was made when its module was imported
    """
    prefix = prefixed("", using)
    if not key.startswith(prefix):
        raise LockKeyError(
            f"The lock {key[:LONGEST_SHOWN]!a} was made under another KEY_PREFIX, and here it is "
            f"{prefix[:-1]!r}. A lock keeps its prefix: make it in the function that uses it, not "
            "at import."
        )


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "DISTLOCK":
        configuration.cache_clear()
        _key_prefix.cache_clear()


setting_changed.connect(_forget)


def positive_seconds(value: object, name: str) -> float | None:
    """Return an option in seconds; None means no limit.

    :raises TypeError: not a number, a timedelta or None
    :raises ValueError: not above 0
    """
    limit = seconds(value, name, "above 0, a timedelta, or None for no limit")
    if limit == 0:
        raise ValueError(f"{name} must be a number of seconds above 0, or None for no limit.")
    return limit


def seconds(
    value: object,
    name: str = "timeout",
    expected: str = "from 0 up, a timedelta, or None: 0 tries once, None waits for ever",
) -> float | None:
    """Return a ``timeout=`` argument in seconds; None waits for ever.

    :raises TypeError: not a number, a timedelta or None
    :raises ValueError: negative or NaN
    """
    if value is None:
        return None
    number: Any = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not (is_number and number >= 0):
        raise (ValueError if is_number else TypeError)(
            f"{name} must be a number of seconds {expected}, not {value!r:.80}."
        )
    return None if math.isinf(number) else float(number)


def wait_limit(blocking: bool, timeout: Any, own: Any, using: str) -> float | None:
    """Return the seconds that an acquire may wait: 0 tries once, None waits for ever.

    :param timeout: the argument of the call
    :param own: the lock's own, which counts without an argument, in seconds or `UNSET`; without
        both, the setting ``TIMEOUT`` counts
    :raises TypeError, ValueError: an invalid `timeout`, also where the call does not block
    """
    limit: float | None
    if timeout is not UNSET:
        limit = seconds(timeout)
    elif own is not UNSET:
        limit = own
    else:
        limit = configuration(using).timeout
    return limit if blocking else 0.0


def warn_unless_installed(used: str, *, stacklevel: int) -> None:
    """Warn a site that uses `used` without the app.

    A system check cannot do this: without the app, nobody registers it before the checks run.

    :param stacklevel: the frame to blame, as in :func:`warnings.warn`, counted from the caller
    """
    if apps.ready and not apps.is_installed("distlock"):
        warnings.warn(
            f'{used} is used, but "distlock" is not in INSTALLED_APPS. Add it: without it there '
            "are no checks, no `manage.py distlock`, no admin page and no log of lost locks.",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )
