"""Reads the only setting, ``DISTLOCK``: a dict of aliases, like ``DATABASES``.

Reading it never connects. `rules` finds mistakes, which `configuration` refuses.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import cache
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.views.decorators.debug import sensitive_variables

from .rules import EMBEDDED, REDIS, ZOOKEEPER, embedded_problems, joined, problems


class _Unset(Enum):
    """A value that stays the same object in copies."""

    UNSET = "not given"


#: Means "not given" where None has a meaning (`timeout=None` waits for ever).
UNSET: Final = _Unset.UNSET


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One alias of ``DISTLOCK``, checked. Times are seconds; see docs/reference/settings.md."""

    alias: str = "default"
    #: A URL of Redis may hold a password.
    hosts: str = field(default="127.0.0.1:2181", repr=False)
    namespace: str = "/distlock"
    timeout: float | None = 5.0
    session_timeout: float = 10.0
    connect_timeout: float = 3.0
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    acl: Any = field(default="open", repr=False)
    tls: Mapping[str, Any] | None = field(default=None, repr=False)
    in_transaction: str = "raise"
    busy_status: int = 423
    retry_after: float = 1.0
    node_data: str = "full"
    label: str = "route"
    deadlock_after: float | None = 3.0
    strict: bool = False
    max_node_bytes: int = 750_000
    history: int = 0
    history_slow: float = 1.0
    replicas: int = 0

    @property
    def engine(self) -> str:
        """The package of `distlock.engine` for these servers, as ``HOSTS`` names them."""
        return REDIS if "://" in self.hosts else ZOOKEEPER

    @property
    def embedded(self) -> bool:
        """Whether it uses the embedded server that all processes of the user share."""
        return self.hosts == EMBEDDED


#: Changes each configuration; `distlock.testing` puts one here that names its own server.
adapted: Callable[[Configuration], Configuration] = lambda conf: conf  # noqa: E731 - a default


@cache
@sensitive_variables()  # error mails show variables
def configuration(alias: str = "default") -> Configuration:
    """Return the checked settings of `alias`.

    :raises ImproperlyConfigured: no such alias, or a value that cannot work
    """
    aliases = getattr(settings, "DISTLOCK", {"default": {}})
    if not isinstance(aliases, Mapping) or alias not in aliases:
        known = ", ".join(map(repr, aliases)) if isinstance(aliases, Mapping) else "none"
        raise ImproperlyConfigured(f"DISTLOCK has no alias {alias!r}; it has: {known}.")
    options = aliases[alias]
    for problem in (*problems(alias, options), *embedded_problems(alias, options)):
        raise ImproperlyConfigured(f"{problem.message} {problem.hint}")
    values: dict[str, Any] = {
        name.lower(): value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in options.items()
    }
    if "hosts" in values:
        values["hosts"] = joined(values["hosts"])
    values["namespace"] = values.get("namespace", Configuration.namespace).rstrip("/")
    values["auth"] = tuple((scheme, secret) for scheme, secret in values.get("auth") or ())
    return adapted(Configuration(alias=alias, **values))


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "DISTLOCK":
        configuration.cache_clear()


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
