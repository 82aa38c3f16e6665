"""Access lists: who a client is, and which entries a node may get.

Source: ZooKeeper's ``DigestAuthenticationProvider`` and ``PrepRequestProcessor.fixupACL``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kazoo.exceptions import AuthFailedError, InvalidACLError
from kazoo.security import ACL, Id, make_digest_acl_credential
from kazoo.security import ANYONE_ID_UNSAFE as ANYONE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def identify(scheme: str, credentials: bytes) -> Id:
    """Return the client who gives these credentials.

    :param credentials: with the scheme ``digest`` the user's name, a colon and the password
    :raises AuthFailedError: the scheme is another one, or there is no colon
    """
    name, colon, password = credentials.decode(errors="replace").partition(":")
    if scheme != "digest" or not colon:
        raise AuthFailedError
    return Id(scheme, make_digest_acl_credential(name, password))


def resolve(acl: Iterable[ACL], ids: Iterable[Id]) -> tuple[ACL, ...]:
    """Return a node's access list as it is kept: ``auth`` stands for the client itself.

    :param ids: who the client is
    :raises InvalidACLError: the list is empty, or an entry names nobody
    """
    kept: list[ACL] = []
    for entry in dict.fromkeys(acl):
        if entry.id.scheme == "auth":
            found = [ACL(entry.perms, one) for one in ids]
        else:
            found = [entry] if _valid(entry.id) else []
        if not found:
            raise InvalidACLError
        kept += found
    if not kept:
        raise InvalidACLError
    return tuple(kept)


def permits(acl: Iterable[ACL], permissions: int, ids: Collection[Id]) -> bool:
    """Whether an access list gives one of `permissions` to anybody or to one of `ids`."""
    return any(
        entry.perms & permissions and (entry.id == ANYONE or entry.id in ids) for entry in acl
    )


def without_digests(acl: Iterable[ACL]) -> tuple[ACL, ...]:
    """Return an access list as those see it who may not change it."""
    return tuple(ACL(perms, _without_digest(who)) for perms, who in acl)


def _without_digest(who: Id) -> Id:
    return Id(who.scheme, who.id.partition(":")[0] + ":x") if who.scheme == "digest" else who


def _valid(who: Id) -> bool:
    name: str = who.id
    return bool(who == ANYONE) or (who.scheme == "digest" and name.count(":") == 1)
