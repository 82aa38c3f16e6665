"""The rules by which a server refuses requests: paths, access lists, and its errors.

Source: ZooKeeper's ``KeeperException.Code``, ``PathUtils``, ``DigestAuthenticationProvider``,
``IPAuthenticationProvider``, ``ZooKeeperServer.checkACL`` and ``PrepRequestProcessor.fixupACL``.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import Final, TypeAlias

#: Scheme and name.
Who: TypeAlias = "tuple[str, str]"
#: Permissions, scheme and name.
Entry: TypeAlias = "tuple[int, str, str]"
Acl: TypeAlias = "tuple[Entry, ...]"

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
_ANYONE: Final = ("world", "anyone")
#: Anybody may do anything, or only read.
OPEN: Final[Acl] = ((READ | WRITE | CREATE | DELETE | ADMIN, *_ANYONE),)
READ_ONLY: Final[Acl] = ((READ, *_ANYONE),)

_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


class Code(IntEnum):
    ROLLED_BACK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121


class Refused(Exception):
    """A server refuses a request; `code` says why."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


def validate(path: str) -> None:
    """Refuse a path that no node may have."""
    first, *names = path.split("/")
    allowed = path == "/" or not {"", ".", ".."} & set(names)
    if first or not names or not allowed or _FORBIDDEN.search(path):
        raise Refused(Code.BAD_ARGUMENTS)


def parent(path: str) -> str:
    """Return the path of the node above."""
    return path.rpartition("/")[0] or "/"


def identify(scheme: str, credentials: bytes) -> Who:
    """Return the client who gives these credentials. No password is wrong, nobody is ``super``."""
    if scheme != "digest":
        raise Refused(Code.AUTH_FAILED)
    text = credentials.decode(errors="replace")
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return scheme, f"{text.partition(':')[0]}:{base64.b64encode(digest).decode()}"


def resolve(acl: Iterable[Entry], ids: Iterable[Who]) -> Acl:
    """Return a node's access list as it is kept: ``auth`` stands for the client itself."""
    kept: list[Entry] = []
    for may, scheme, name in dict.fromkeys(acl):
        if scheme == "auth":
            found = [(may, *one) for one in ids if one[0] != "ip"]
        else:
            found = [(may, scheme, name)] if _valid(scheme, name) else []
        if not found:
            raise Refused(Code.INVALID_ACL)
        kept += found
    if not kept:
        raise Refused(Code.INVALID_ACL)
    return OPEN if kept == [*OPEN] else tuple(kept)  # most nodes have that one


def permits(acl: Acl, permissions: int, ids: Collection[Who]) -> bool:
    """Whether an access list gives one of `permissions` to anybody or to one of `ids`."""
    return any(
        may & permissions
        and ((scheme, name) == _ANYONE or any(_matches((scheme, name), one) for one in ids))
        for may, scheme, name in acl
    )


def without_digests(acl: Acl) -> Acl:
    """Return an access list as those see it who may not change it."""
    return tuple(
        (may, scheme, name.partition(":")[0] + ":x" if scheme == "digest" else name)
        for may, scheme, name in acl
    )


def _valid(scheme: str, name: str) -> bool:
    if scheme == "ip":
        try:
            ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False
        return True
    return (scheme, name) == _ANYONE or (scheme == "digest" and name.count(":") == 1)


def _matches(who: Who, client: Who) -> bool:
    if who[0] == client[0] == "ip":
        return ipaddress.ip_address(client[1]) in ipaddress.ip_network(who[1], strict=False)
    return who == client
