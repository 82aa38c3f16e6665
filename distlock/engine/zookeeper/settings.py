"""Says which settings ZooKeeper has, without kazoo.

`distlock.engine.protocol.Settings` tells of the names without an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from os import PathLike
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning

from distlock import process
from distlock.engine.hosts import EMBEDDED, is_server, joined, mistake

#: Its limits, in a few words.
ABOUT: Final = "for development: one process, nothing on disk, no replication"
#: create, delete, read, write, administer (set the ACL): the letters of ZooKeeper's ``setAcl``, and
#: the bits of its permissions. It asks the parent's ACL for ``c`` and ``d``, and the node's own for
#: ``r``, ``w`` and ``a``; every node gets the same list, so both agree.
BITS: Final = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}

#: The roles of the setting ``ACL``. The application takes locks. Operators look, ask holders to
#: leave, break, sweep, and set the ACL. Readers look.
ROLES: Final = {"app": "cdrw", "operators": "drwa", "readers": "r"}
_REQUIRED: Final = {"app", "operators"}  # without an administrator the ACL could never change again

_DIGEST = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")
_TLS_OPTIONS = {"ca", "cert", "key", "key_password", "verify", "check_hostname"}


def _auth(value: object) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(map(_is_pair, value)))


def _acl(value: object) -> bool:
    if isinstance(value, str):
        return value in ("open", "creator")
    return (isinstance(value, list) and bool(value)) or _is_roles(value)


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


def _is_roles(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and set(value) >= _REQUIRED
        and set(value) <= set(ROLES)
        and all(isinstance(users, list | tuple) and users for users in value.values())
        and all(_is_user(user) for users in value.values() for user in users)
    )


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(text, str) and text for text in value)
    )


def _is_user(user: Any) -> bool:
    # A password in place of its digest would lock everybody out, and everybody could read it.
    return (
        _is_pair(user)
        and user[0] != "auth"
        and (user[0] != "digest" or _DIGEST.fullmatch(user[1]) is not None)
    )


NAME: Final = "ZooKeeper"
EXAMPLE: Final = 'text such as "zk1:2181,zk2:2181,zk3:2181"'
RULES: Final[Mapping[str, tuple[Any, str]]] = {
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
}
UNKNOWN: Final[Mapping[str, str]] = {"REPLICAS": "A majority of the ensemble confirms each lock."}


def mistake_in(hosts: Any) -> str | None:
    if is_ensemble(hosts):
        return None
    shown = repr(hosts)  # somebody may have written user:password@host
    return "is not valid" if "@" in shown else f"is not valid: {shown:.200}"


def problems(where: str, options: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    hosts, pairs = options.get("HOSTS"), options.get("AUTH")
    has_sasl = _auth(pairs) and "sasl" in [scheme for scheme, _ in pairs or ()]
    if has_sasl and find_spec("puresasl") is None:
        yield mistake(
            f"{where}['AUTH'] has SASL credentials, but pure-sasl is not installed.",
            "Type: pip install pure-sasl",
        )
    if not is_ensemble(hosts) or joined(hosts) != EMBEDDED:
        return
    if options.get("TLS") is not None or has_sasl:
        yield mistake(
            f"{where} has TLS or SASL, which the embedded server does not know.",
            "Remove TLS, and give AUTH no other scheme than digest.",
        )
    if not (settings.DEBUG or process.is_test_run()):  # runners of tests set DEBUG to False
        yield Error(
            f"{where}['HOSTS'] is {hosts!r}, and DEBUG is False: the embedded server, also that "
            f"for SQLite, is {ABOUT}.",
            'Name the servers of a ZooKeeper, such as "zk1:2181,zk2:2181,zk3:2181", or a database '
            "on PostgreSQL.",
            id="distlock.E007",
        )


def problems_in_deployment(where: str, options: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    if options.get("ACL", "open") == "open":
        yield CheckWarning(
            f"{where}: whoever reaches ZooKeeper can delete a lock node.",
            'Set AUTH and ACL = "creator".',
            id="distlock.W003",
        )
    if options.get("TLS") is None:
        yield CheckWarning(
            f"{where}: the connection to ZooKeeper is not encrypted.",
            'Set TLS, for example {"ca": "/etc/ssl/zookeeper-ca.pem"}.',
            id="distlock.W004",
        )


def chroot(hosts: str) -> str:
    path = hosts.partition("/")[2]
    return f"/{path}" if path else ""


def is_ensemble(hosts: object) -> bool:
    """Return whether a ``HOSTS`` value names the servers of an ensemble."""
    parts: list[Any] = list(hosts) if isinstance(hosts, list | tuple) else [hosts]
    if not parts or not all(isinstance(part, str) for part in parts):
        return False
    servers, _, chroot = joined(parts).partition("/")
    return all(map(is_server, servers.split(","))) and not (
        chroot and any(name in ("", ".", "..") for name in chroot.split("/"))
    )
