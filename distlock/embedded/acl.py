"""Access lists: who a client is, and which entries a node may get.

An entry has permissions, and a scheme and a name: whom it means. A client has a scheme and a name
for each of its credentials.

Source: ZooKeeper's ``DigestAuthenticationProvider``, ``IPAuthenticationProvider``,
``ZooKeeperServer.checkACL`` and ``PrepRequestProcessor.fixupACL``.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from typing import TYPE_CHECKING, Final, TypeAlias

from .errors import Code, Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

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


def identify(scheme: str, credentials: bytes) -> Who:
    """Return the client who gives these credentials.

    No password is wrong, and nobody is ``super``: the access lists decide.

    :param credentials: the user's name, a colon and the password
    :raises Refused: the scheme is not ``digest``
    """
    if scheme != "digest":
        raise Refused(Code.AUTH_FAILED)
    text = credentials.decode(errors="replace")
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return scheme, f"{text.partition(':')[0]}:{base64.b64encode(digest).decode()}"


def resolve(acl: Iterable[Entry], ids: Iterable[Who]) -> Acl:
    """Return a node's access list as it is kept: ``auth`` stands for the client itself.

    :param ids: who the client is
    :raises Refused: the list is empty, or an entry names nobody
    """
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
    """Whether an access list that names `who` means the client."""
    if who[0] == client[0] == "ip":
        return ipaddress.ip_address(client[1]) in ipaddress.ip_network(who[1], strict=False)
    return who == client
