"""Compares the ACLs of the nodes under the namespace with the setting, and sets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from distlock.engine.bulk_reads import FORBIDDEN, GONE, UNREAD
from distlock.engine.zookeeper.requests import access_list
from distlock.engine.zookeeper.roles import BITS, ROLES
from distlock.keys.limits import MAX_INT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distlock.conf import Configuration
    from distlock.engine.bulk_reads import Outcome, Reads

#: No node has this version, so a conditional write is refused after its permission was checked.
_NO_VERSION: Final = MAX_INT


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The ACLs under a namespace, compared with the setting.

    :ivar exists: whether the namespace's own node exists
    :ivar looked_at: number of nodes whose ACL was read
    :ivar wrong: paths of nodes with another ACL than the setting's, parents first
    :ivar unread: paths of nodes whose ACL, or whose children, could not be read
    """

    exists: bool
    looked_at: int
    wrong: list[str]
    unread: list[str]


def audit(reads: Reads, *, limit: int | None = None) -> Audit:
    """Compare the ACL of every node under the namespace with the setting.

    :param limit: the number of nodes to check, the namespace first; None for all
    :raises LockUnavailable: the connection was lost
    """
    conf = reads.session.conf
    exists, looked_at = True, 0
    wrong: list[str] = []
    unread: dict[str, None] = {}
    for path, found in islice(_nodes(reads, limit), limit):
        if found is GONE:
            exists = exists and path != reads.session.root
        elif found in (FORBIDDEN, UNREAD):
            unread[path] = None
        else:
            looked_at += 1
            if not _fits(found, conf):
                wrong.append(path)
    return Audit(exists=exists, looked_at=looked_at, wrong=wrong, unread=list(unread))


def create_namespace(reads: Reads) -> None:
    """Create the namespace's node as a persistent one.

    The server removes an empty container. Then any client that may create nodes beside it could
    create it anew.

    :raises NodeExists: it exists by now
    :raises LockUnavailable: ZooKeeper refused, or did not answer in time
    """
    session = reads.session
    above = session.root.rpartition("/")[0]

    def ask(method: Any, *args: Any) -> None:
        session.call(method, *args, timeout=reads.left, key=session.root)

    if above and reads.nodes([above]) == [GONE]:
        ask(session.create_containers, above)
    ask(session.create_persistent, session.root, b"")


def set_acls(reads: Reads, paths: Iterable[str]) -> list[str]:
    """Give nodes the ACL of the setting; return the paths of those that refused it.

    A node that no longer exists is not among them.

    :raises LockUnavailable: the connection was lost, or ZooKeeper refused the ACL
    """
    paths = list(paths)
    outcomes = reads.each(reads.session.write_acl, paths)
    return [
        path
        for path, outcome in zip(paths, outcomes, strict=True)
        if outcome in (FORBIDDEN, UNREAD)
    ]


def permissions(reads: Reads) -> str | None:
    """Try the configured user's permissions on the namespace's node, and return their letters.

    This changes nothing: each request fails after the check of its permission. It returns None if
    the node does not exist, or if there was no answer in time.
    """
    session, root = reads.session, reads.session.root
    missing = f"{root}/@doctor-{uuid4().hex}"
    requests = {
        "c": partial(
            session.transact, lambda make: [make.creation(missing), make.presence(f"{missing}-")]
        ),
        "d": partial(session.remove, missing, -1),
        "r": partial(session.children, root),
        "w": partial(session.write, root, b"", _NO_VERSION),
        "a": partial(session.write_acl, root, version=_NO_VERSION),
    }
    if reads.acls([root])[0] in (GONE, UNREAD):
        return None
    outcomes = reads.tried(requests)
    if UNREAD in outcomes.values():
        return None
    return "".join(letter for letter in BITS if outcomes[letter] is not FORBIDDEN)


def role(letters: str) -> str | None:
    """Return the role with exactly these permissions, or None."""
    return next((name for name, may in ROLES.items() if set(may) == set(letters)), None)


def _nodes(reads: Reads, limit: int | None) -> Iterator[tuple[str, Outcome]]:
    """Yield the path and the ACL of each node, level by level.

    For a node whose children cannot be listed, yield its path again, with the reason.
    """
    level = [reads.session.root]
    while level:
        yield from zip(level, reads.acls(level), strict=True)
        below = zip(level, reads.children(level), strict=True)
        level = []
        for path, names in below:
            if isinstance(names, list):
                level += [f"{path}/{name}" for name in names[:limit]]
            elif names is not GONE:
                yield path, names


def _fits(found: list[Any], conf: Configuration) -> bool:
    if conf.acl == "creator":  # the server replaces it by the creator's own ids
        return all(one.id.scheme != "world" for one in found)
    # Clients that may not administer a node see "x" instead of a digest.
    masked = any(_is_masked(one) for one in found)
    return _comparable(found, masked=masked) == _comparable(access_list(conf), masked=masked)


def _is_masked(one: Any) -> bool:
    return bool(one.id.scheme == "digest" and one.id.id.endswith(":x"))


def _comparable(acl: list[Any], *, masked: bool) -> set[tuple[int, str, str]]:
    return {
        (
            one.perms,
            one.id.scheme,
            f"{one.id.id.partition(':')[0]}:x"
            if masked and one.id.scheme == "digest"
            else one.id.id,
        )
        for one in acl
    }


def has_roles(conf: Configuration) -> bool:
    """Return whether the setting names the users of the three roles."""
    return isinstance(conf.acl, Mapping)
