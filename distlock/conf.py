"""Reads the only setting, ``DISTLOCK``: a dict of aliases, like ``DATABASES``.

Reading it never connects. `problems` finds mistakes, for the system checks and for `configuration`,
which refuses wrong settings.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import cache
from importlib.util import find_spec
from os import PathLike
from typing import Any, Final, NamedTuple

from django.apps import apps
from django.conf import settings
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.views.decorators.debug import sensitive_variables

from .engine.ensemble import hosts_error, joined
from .engine.roles import is_roles
from .keys import templates


class _Unset(Enum):
    """A value that stays the same object in copies."""

    UNSET = "not given"


#: Means "not given" where None has a meaning (`timeout=None` waits for ever).
UNSET: Final = _Unset.UNSET

IN_TRANSACTION = ("raise", "allow")
NODE_DATA = ("full", "owner")
LABELS = ("route", "path")
ACL_NAMES = ("open", "creator")
#: The most that ``HISTORY`` can be.
MOST_EVENTS: Final = 1_000_000
#: The value of ``HOSTS`` that starts a server; see `distlock.embedded.shared`.
EMBEDDED: Final = "embedded"
#: The limits of an embedded server, in a few words.
ABOUT_EMBEDDED: Final = "for development: one process, nothing on disk, no replication"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One alias of ``DISTLOCK``, checked; see `docs/reference/settings.md`. Times are seconds."""

    alias: str = "default"
    hosts: str = "127.0.0.1:2181"
    namespace: str = "/distlock"
    #: The time that an acquire waits by default; None waits for ever.
    timeout: float | None = 5.0
    #: The session timeout to ask for. The server may grant another one.
    session_timeout: float = 10.0
    #: The time that a call waits for a connection before it raises `LockUnavailable`.
    connect_timeout: float = 3.0
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    acl: Any = field(default="open", repr=False)
    tls: Mapping[str, Any] | None = field(default=None, repr=False)
    in_transaction: str = "raise"
    busy_status: int = 423
    retry_after: float = 1.0
    node_data: str = "full"
    #: The name of a request: its route (``/reset/<token>/``) or its path, which may hold a secret.
    label: str = "route"
    #: The time after which a waiter that holds another lock looks for a deadlock; None never looks.
    #: By default it is shorter than `timeout`, so that deadlocks are reported first.
    deadlock_after: float | None = 3.0
    #: Lock the keys of older releases, too, while processes of both run.
    old_keys: bool = False
    #: Prove the session with writes, which a deposed leader cannot acknowledge.
    strict: bool = False
    max_node_bytes: int = 750_000
    #: The number of events that the database keeps of this alias; 0 keeps no history.
    history: int = 0
    #: The least wait or hold that the history has, unless something went wrong.
    history_slow: float = 1.0

    @property
    def embedded(self) -> bool:
        """Whether it uses the embedded server that all processes of the user share."""
        return self.hosts == EMBEDDED


class Problem(NamedTuple):
    """A mistake in the setting, and the way to correct it."""

    message: str
    hint: str


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
    return Configuration(alias=alias, **values)


def takes_old_keys(alias: str) -> bool:
    """Return whether `alias` has the setting ``OLD_KEYS``.

    Unlike `configuration` this works while modules are imported, when other settings may be wrong
    or missing.
    """
    try:
        aliases = getattr(settings, "DISTLOCK", None)
    except ImproperlyConfigured:  # there are no settings at all
        return False
    options = aliases.get(alias) if isinstance(aliases, Mapping) else None
    return isinstance(options, Mapping) and options.get("OLD_KEYS") is True


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "DISTLOCK":
        configuration.cache_clear()


setting_changed.connect(_forget)


def problems(alias: str, options: object) -> Iterator[Problem]:
    """Yield the mistakes in the options of one alias."""
    where = f"DISTLOCK[{alias!r}]"
    if not isinstance(options, Mapping):
        yield Problem(f"{where} is not a dict.", 'Write {"HOSTS": "127.0.0.1:2181"}.')
        return
    for name in options:
        if name not in _RULES:
            near = difflib.get_close_matches(str(name).upper(), _RULES, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(_RULES)}."
            yield Problem(f"{where} has an unknown setting {name!r}.", hint)
    for name, (accepts, expected) in _RULES.items():
        if name in options and not accepts(options[name]):
            shown = repr(options[name])
            # Somebody may have written user:password@host.
            value = "" if name in _SECRET or "@" in shown else f": {shown:.200}"
            yield Problem(f"{where}[{name!r}] is not valid{value}.", f"Write {expected}.")
    if _has_sasl(options) and find_spec("puresasl") is None:
        yield Problem(
            f"{where}['AUTH'] has SASL credentials, but pure-sasl is not installed.",
            "Install django-distlock[sasl].",
        )
    if _is_embedded(options) and (options.get("TLS") is not None or _has_sasl(options)):
        yield Problem(
            f"{where} has TLS or SASL, which the embedded server does not know.",
            "Remove TLS, and give AUTH no other scheme than digest.",
        )


def embedded_problems(alias: str, options: object) -> Iterator[Problem]:
    """Yield the reason why one alias may not use the embedded server: it is for development.

    Runners of tests set ``DEBUG`` to False, and make an ``outbox``.
    """
    development = settings.DEBUG or hasattr(mail, "outbox")
    if isinstance(options, Mapping) and _is_embedded(options) and not development:
        yield Problem(
            f"DISTLOCK[{alias!r}]['HOSTS'] is {EMBEDDED!r}, and DEBUG is False: the embedded "
            f"server is {ABOUT_EMBEDDED}.",
            'Name the servers of a ZooKeeper, such as "zk1:2181,zk2:2181,zk3:2181".',
        )


def _is_embedded(options: Mapping[Any, Any]) -> bool:
    hosts = options.get("HOSTS")
    return hosts_error(hosts) is None and joined(hosts) == EMBEDDED


def _seconds(value: object, least: float = 0) -> bool:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0 and value >= least


def _namespace(value: object) -> bool:
    if not isinstance(value, str) or not value.startswith("/") or not value.strip("/"):
        return False
    names = value.rstrip("/").split("/")[1:]
    return all(name and templates.znode_name(name) == name for name in names)


def _auth(value: object) -> bool:
    return value is None or (
        isinstance(value, list | tuple)
        and all(
            isinstance(pair, list | tuple)
            and len(pair) == 2
            and all(isinstance(text, str) and text for text in pair)
            for pair in value
        )
    )


def _acl(value: object) -> bool:
    if isinstance(value, str):
        return value in ACL_NAMES
    return (isinstance(value, list) and bool(value)) or is_roles(value)


def _tls(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, Mapping) or not set(value) <= _TLS_OPTIONS:
        return False
    files = [value[name] for name in ("ca", "cert", "key") if name in value]
    switches = [value[name] for name in ("verify", "check_hostname") if name in value]
    return (
        all(isinstance(path, str | PathLike) for path in files)
        and all(isinstance(switch, bool) for switch in switches)
        # These would be ignored without a message:
        and ("cert" in value or "key" not in value)
        and (value.get("verify", True) or not value.get("check_hostname"))
    )


def _has_sasl(options: Mapping[Any, Any]) -> bool:
    pairs = options.get("AUTH")
    return _auth(pairs) and "sasl" in [scheme for scheme, _ in pairs or ()]


_TLS_OPTIONS = {"ca", "cert", "key", "key_password", "verify", "check_hostname"}
_SECRET = {"AUTH", "TLS", "ACL"}
_A_TIME = "a number of seconds above 0 (or a timedelta)"

# name → (test of a value, what it should be)
_RULES: dict[str, tuple[Any, str]] = {
    "HOSTS": (lambda v: hosts_error(v) is None, 'text such as "zk1:2181,zk2:2181,zk3:2181"'),
    "NAMESPACE": (_namespace, 'a path such as "/distlock", of letters, digits and _ . : -'),
    "TIMEOUT": (lambda v: v is None or _seconds(v), f"{_A_TIME}, or None to wait for ever"),
    "SESSION_TIMEOUT": (
        lambda v: _seconds(v, least=1),
        (
            "a number of seconds from 1 up (or a timedelta): servers grant two ticks or more, "
            "4 s by default, and below 1 s a pause of two thirds of a second would lose all locks"
        ),
    ),
    "CONNECT_TIMEOUT": (_seconds, _A_TIME),
    "AUTH": (_auth, 'a list of pairs such as [("digest", "user:password")]'),
    "ACL": (
        _acl,
        (
            '"open", "creator" (with AUTH), a list of kazoo ACL objects, or a dict of "app", '
            '"operators" and perhaps "readers", each a list of pairs such as '
            '("digest", "user:" + its digest) or ("sasl", "user")'
        ),
    ),
    "TLS": (
        _tls,
        (
            'a dict with any of "ca", "cert", "key" (paths), "key_password", "verify" and '
            '"check_hostname" (True or False); key needs cert, check_hostname needs verify'
        ),
    ),
    "IN_TRANSACTION": (lambda v: v in IN_TRANSACTION, " or ".join(map(repr, IN_TRANSACTION))),
    "BUSY_STATUS": (lambda v: isinstance(v, int) and 400 <= v < 600, "a status from 400 to 599"),
    "RETRY_AFTER": (_seconds, _A_TIME),
    "DEADLOCK_AFTER": (lambda v: v is None or _seconds(v), f"{_A_TIME}, or None not to look"),
    "STRICT": (lambda v: isinstance(v, bool), "True or False"),
    "OLD_KEYS": (lambda v: isinstance(v, bool), "True or False"),
    "MAX_NODE_BYTES": (
        lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 1000,
        "a number of bytes from 1000 up, well below the servers' jute.maxbuffer",
    ),
    "HISTORY": (
        lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= MOST_EVENTS,
        f"a number of events from 0 (no history) to {MOST_EVENTS}",
    ),
    "HISTORY_SLOW": (
        lambda v: (v == 0 and not isinstance(v, bool)) or _seconds(v),
        "a number of seconds from 0 up (or a timedelta); 0 records each hold",
    ),
    "NODE_DATA": (lambda v: v in NODE_DATA, " or ".join(map(repr, NODE_DATA))),
    "LABEL": (lambda v: v in LABELS, " or ".join(map(repr, LABELS))),
}


def positive_seconds(value: object, name: str) -> float | None:
    """Return an option in seconds; None means no limit.

    :raises TypeError: not a number, a timedelta or None
    :raises ValueError: not above 0
    """
    kind: type[Exception] = ValueError
    try:
        if (limit := seconds(value)) != 0:
            return limit
    except (TypeError, ValueError) as error:
        kind = type(error)
    raise kind(
        f"{name} must be a number of seconds above 0, a timedelta, or None for no limit, "
        f"not {value!r:.80}."
    )


def seconds(timeout: object) -> float | None:
    """Return a ``timeout=`` argument in seconds; None waits for ever.

    :raises TypeError: not a number, a timedelta or None
    :raises ValueError: negative or NaN
    """
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(
            "timeout must be a number of seconds, a timedelta, or None to wait for ever, "
            f"not {timeout!r:.80}."
        )
    if not timeout >= 0:
        raise ValueError(
            f"timeout cannot be {timeout!r}: 0 tries once, None waits for ever, "
            "any other number is seconds."
        )
    return None if math.isinf(timeout) else float(timeout)


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
