"""Access lists: who a client is, and which entries a node may get.

Source: ZooKeeper's ``DigestAuthenticationProvider``, ``IPAuthenticationProvider``,
``ZooKeeperServer.checkACL`` and ``PrepRequestProcessor.fixupACL``.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from typing import TYPE_CHECKING

from kazoo.exceptions import AuthFailedError, InvalidACLError
from kazoo.security import ACL, Id
from kazoo.security import ANYONE_ID_UNSAFE as ANYONE

from .node import OPEN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def identify(scheme: str, credentials: bytes) -> Id:
    """Return the client who gives these credentials.

    No password is wrong, and nobody is ``super``: the access lists decide.

    :param credentials: the user's name, a colon and the password
    :raises AuthFailedError: the scheme is not ``digest``
    """
    if scheme != "digest":
        raise AuthFailedError
    text = credentials.decode(errors="replace")
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return Id(scheme, f"{text.partition(':')[0]}:{base64.b64encode(digest).decode()}")


def resolve(acl: Iterable[ACL], ids: Iterable[Id]) -> tuple[ACL, ...]:
    """Return a node's access list as it is kept: ``auth`` stands for the client itself.

    :param ids: who the client is
    :raises InvalidACLError: the list is empty, or an entry names nobody
    """
    kept: list[ACL] = []
    for entry in dict.fromkeys(acl):
        if entry.id.scheme == "auth":
            found = [ACL(entry.perms, one) for one in ids if one.scheme != "ip"]
        else:
            found = [entry] if _valid(entry.id) else []
        if not found:
            raise InvalidACLError
        kept += found
    if not kept:
        raise InvalidACLError
    return OPEN if kept == [*OPEN] else tuple(kept)  # most nodes have that one


def permits(acl: Iterable[ACL], permissions: int, ids: Collection[Id]) -> bool:
    """Whether an access list gives one of `permissions` to anybody or to one of `ids`."""
    return any(
        entry.perms & permissions
        and (entry.id == ANYONE or any(_matches(entry.id, one) for one in ids))
        for entry in acl
    )


def without_digests(acl: Iterable[ACL]) -> tuple[ACL, ...]:
    """Return an access list as those see it who may not change it."""
    return tuple(ACL(perms, _without_digest(who)) for perms, who in acl)


def _without_digest(who: Id) -> Id:
    return Id(who.scheme, who.id.partition(":")[0] + ":x") if who.scheme == "digest" else who


def _valid(who: Id) -> bool:
    if who.scheme == "ip":
        try:
            ipaddress.ip_network(who.id, strict=False)
        except ValueError:
            return False
        return True
    return bool(who == ANYONE or (who.scheme == "digest" and who.id.count(":") == 1))


def _matches(who: Id, client: Id) -> bool:
    """Whether an access list that names `who` means the client."""
    if who.scheme == client.scheme == "ip":
        return ipaddress.ip_address(client.id) in ipaddress.ip_network(who.id, strict=False)
    return bool(who == client)
