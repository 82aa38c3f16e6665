"""Says which values the settings may have, and finds mistakes in them.

The system checks report `problems`; `configuration` refuses them.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from importlib.util import find_spec
from os import PathLike
from typing import Any, Final, NamedTuple

from django.conf import settings

from distlock import process
from distlock.keys import templates

from .redis_urls import is_server, url_error

#: The most that ``HISTORY`` can be.
MOST_EVENTS: Final = 1_000_000
#: The value of ``HOSTS`` that starts a server; see `distlock.embedded.shared`.
EMBEDDED: Final = "embedded"
#: The engines, as packages; ``HOSTS`` tells which one is meant.
ZOOKEEPER: Final = "distlock.engine.zookeeper"
REDIS: Final = "distlock.engine.redis"
#: The limits of an embedded server, in a few words.
ABOUT_EMBEDDED: Final = "for development: one process, nothing on disk, no replication"
#: create, delete, read, write, administer (set the ACL): the letters of ZooKeeper's ``setAcl``, and
#: the bits of its permissions. It asks the parent's ACL for ``c`` and ``d``, and the node's own for
#: ``r``, ``w`` and ``a``; every node gets the same list, so both agree.
BITS: Final = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}

#: The roles of the setting ``ACL``. The application takes locks. Operators look, ask holders to
#: leave, break, sweep, and set the ACL. Readers look.
ROLES: Final = {"app": "cdrw", "operators": "drwa", "readers": "r"}
_REQUIRED: Final = {"app", "operators"}  # without an administrator the ACL could never change again

_DIGEST = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")


class Problem(NamedTuple):
    """A mistake in the setting, and the way to correct it."""

    message: str
    hint: str


def problems(alias: str, options: object) -> Iterator[Problem]:
    """Yield the mistakes in the options of one alias."""
    where = f"DISTLOCK[{alias!r}]"
    if not isinstance(options, Mapping):
        yield Problem(f"{where} is not a dict.", 'Write {"HOSTS": "127.0.0.1:2181"}.')
        return
    for name in options:
        if name not in _RULES:
            near = difflib.get_close_matches(str(name).upper(), _RULES, n=1, cutoff=0.7)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(_RULES)}."
            yield Problem(f"{where} has an unknown setting {name!r}.", hint)
    for name, (accepts, expected) in _RULES.items():
        if name in options and not accepts(options[name]):
            if name == "HOSTS" and is_redis(options):
                mistake = url_error(options[name])
                yield Problem(f"{where}['HOSTS'] {mistake}.", f"Write {expected}.")
                continue
            shown = repr(options[name])
            # Somebody may have written user:password@host.
            value = "" if name in _SECRET or "@" in shown else f": {shown:.200}"
            yield Problem(f"{where}[{name!r}] is not valid{value}.", f"Write {expected}.")
    redis = is_redis(options)
    if redis and find_spec("hiredis") is None:
        yield Problem(
            f"{where}['HOSTS'] is a URL of Redis, but redis-py with hiredis is not installed.",
            "Install django-distlock[redis].",
        )
    for name, advice in (_NOT_IN_REDIS if redis else _NOT_IN_ZOOKEEPER).items():
        given = options.get(name)
        if given not in _WITHOUT_EFFECT and _RULES[name][0](given):
            engine = "Redis" if redis else "ZooKeeper"
            yield Problem(f"{where}[{name!r}] means nothing to {engine}.", f"Remove it. {advice}")
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

    Runners of tests set ``DEBUG`` to False.
    """
    development = settings.DEBUG or process.is_test_run()
    if isinstance(options, Mapping) and _is_embedded(options) and not development:
        yield Problem(
            f"DISTLOCK[{alias!r}]['HOSTS'] is {EMBEDDED!r}, and DEBUG is False: the embedded "
            f"server is {ABOUT_EMBEDDED}.",
            'Name the servers of a ZooKeeper, such as "zk1:2181,zk2:2181,zk3:2181".',
        )


def is_redis(options: Mapping[Any, Any]) -> bool:
    """Return whether ``HOSTS`` is a URL."""
    hosts = options.get("HOSTS")
    return isinstance(hosts, str) and "://" in hosts


def joined(hosts: Any) -> str:
    """Return a ``HOSTS`` value as one text, without spaces around servers, as kazoo needs it."""
    text = hosts if isinstance(hosts, str) else ",".join(hosts)
    return ",".join(server.strip() for server in text.split(","))


def _hosts(value: object) -> bool:
    if isinstance(value, str) and "://" in value:
        return url_error(value) is None
    return is_ensemble(value)


def is_ensemble(hosts: object) -> bool:
    """Return whether a ``HOSTS`` value names the servers of a ZooKeeper."""
    parts: list[Any] = list(hosts) if isinstance(hosts, list | tuple) else [hosts]
    if not parts or not all(isinstance(part, str) for part in parts):
        return False
    servers, _, chroot = joined(parts).partition("/")
    return all(map(is_server, servers.split(","))) and not (
        chroot and any(name in ("", ".", "..") for name in chroot.split("/"))
    )


def _is_embedded(options: Mapping[Any, Any]) -> bool:
    hosts = options.get("HOSTS")
    return is_ensemble(hosts) and joined(hosts) == EMBEDDED


def _seconds(value: object, least: float = 0) -> bool:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0 and value >= least


def _whole(least: int, most: float = math.inf) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    )


def _namespace(value: object) -> bool:
    if not isinstance(value, str) or not value.startswith("/") or not value.strip("/"):
        return False
    names = value.rstrip("/").split("/")[1:]
    return all(name and templates.znode_name(name) == name for name in names)


def _auth(value: object) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(map(is_pair, value)))


def _acl(value: object) -> bool:
    if isinstance(value, str):
        return value in ("open", "creator")
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
#: The values that change nothing, of settings that only one engine has.
_WITHOUT_EFFECT = (None, False, 0, "open")
# name → what to do instead
_NOT_IN_REDIS = {
    "AUTH": 'Write the user and the password into HOSTS: "redis://user:password@host".',
    "ACL": "Redis knows no ACL of single locks. A user of its own, with a password and the keys of "
    "NAMESPACE, keeps others away.",
    "TLS": 'Write "rediss://" in HOSTS, with options such as "?ssl_ca_certs=/path".',
    "STRICT": "A Redis server proves each session itself.",
}
_NOT_IN_ZOOKEEPER = {"REPLICAS": "A majority of the ensemble confirms each lock."}
_A_TIME = "a number of seconds above 0 (or a timedelta)"

# name → (test of a value, what it should be)
_RULES: dict[str, tuple[Any, str]] = {
    "REPLICAS": (_whole(0), "a number"),
    "HOSTS": (
        _hosts,
        (
            'text such as "zk1:2181,zk2:2181,zk3:2181", or a URL of Redis such as '
            '"redis://127.0.0.1:6379/0" or "redis+sentinel://host:26379,host:26379/service/0"'
        ),
    ),
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
    "IN_TRANSACTION": (lambda v: v in ("raise", "allow"), "'raise' or 'allow'"),
    "BUSY_STATUS": (_whole(400, 599), "a status from 400 to 599"),
    "RETRY_AFTER": (_seconds, _A_TIME),
    "DEADLOCK_AFTER": (lambda v: v is None or _seconds(v), f"{_A_TIME}, or None not to look"),
    "STRICT": (lambda v: isinstance(v, bool), "True or False"),
    "MAX_NODE_BYTES": (
        _whole(1000),
        "a number of bytes from 1000 up, well below the servers' jute.maxbuffer",
    ),
    "HISTORY": (_whole(0, MOST_EVENTS), f"a number of events from 0 (no history) to {MOST_EVENTS}"),
    "HISTORY_SLOW": (
        lambda v: (v == 0 and not isinstance(v, bool)) or _seconds(v),
        "a number of seconds from 0 up (or a timedelta); 0 records each hold",
    ),
    "NODE_DATA": (lambda v: v in ("full", "owner"), "'full' or 'owner'"),
    "LABEL": (lambda v: v in ("route", "path"), "'route' or 'path'"),
}


def bits(letters: str) -> int:
    """Return permissions as ZooKeeper's number."""
    return sum(BITS[letter] for letter in letters)


def is_roles(value: object) -> bool:
    """Return whether a value of ``ACL`` names the users of the roles, in a form that can work."""
    return (
        isinstance(value, Mapping)
        and set(value) >= _REQUIRED
        and set(value) <= set(ROLES)
        and all(isinstance(users, list | tuple) and users for users in value.values())
        and all(_is_user(user) for users in value.values() for user in users)
    )


def is_pair(value: object) -> bool:
    """Return whether it is a scheme and what belongs to it, neither of them empty."""
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(text, str) and text for text in value)
    )


def _is_user(user: Any) -> bool:
    # A password in place of its digest would lock everybody out, and everybody could read it.
    return (
        is_pair(user)
        and user[0] != "auth"
        and (user[0] != "digest" or _DIGEST.fullmatch(user[1]) is not None)
    )
