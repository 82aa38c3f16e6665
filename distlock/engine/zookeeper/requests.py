"""Makes the requests to ZooKeeper. kazoo has no API for some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from distlock.conf.roles import ROLES, bits
from distlock.engine.kazoo import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    CheckVersion,
    Create,
    EventType,
    GetACL,
    Id,
    SetData,
    Sync,
    Transaction,
)
from distlock.jute import pack_integer, pack_text
from distlock.keys.limits import LONGEST_MESSAGE

from .messages import AccessList, Create2, Delete, GetChildren, GetData

if TYPE_CHECKING:
    from distlock.conf import Configuration

_PERSISTENT: Final = 0
_PERSISTENT_SEQUENTIAL: Final = 2
_EPHEMERAL: Final = 1
_EPHEMERAL_SEQUENTIAL: Final = 1 | 2
_CONTAINER: Final = 4
#: The bytes of a message before the request: its number and its type.
_HEAD: Final = 8


class _CreateContainer(Create2):
    """Create a node that the server removes after its last child (kazoo has no API for it)."""

    type = 19


class _RemoveWatches:
    """Remove this connection's watches on a path (opcode 18; kazoo has no API for it)."""

    type = 18

    def __init__(self, path: str, *, children: bool) -> None:
        self.path = path
        self._kind = 1 if children else 2

    def serialize(self) -> bytes:
        return pack_text(self.path) + pack_integer(self._kind)

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> bool:
        return True


class Borrowed:
    """A request of the user's `SharedClient`, which keeps the watcher itself."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.type: int = request.type

    def serialize(self) -> bytes:
        content = bytes(self._request.serialize())
        if len(content) + _HEAD > LONGEST_MESSAGE:
            # A server would close the connection, and all locks would be at risk.
            raise ValueError(
                f"The request has {len(content)} bytes, and ZooKeeper reads no more than "
                f"{LONGEST_MESSAGE - _HEAD}."
            )
        return content

    def deserialize(self, content: bytes, offset: int) -> Any:
        return self._request.deserialize(content, offset)


class Requests:
    """Makes the requests that a client sends."""

    #: None: each create renews the session, as far as the session deadline counts it.
    renewed_at: float | None = None
    _acl: AccessList

    def contender(self, prefix: str, data: bytes) -> Any:
        """Create an ephemeral sequential node; answers (path, stat)."""
        return Create2(prefix, data, self._acl, _EPHEMERAL_SEQUENTIAL)

    def ephemeral(self, path: str, data: bytes) -> Any:
        """Create an ephemeral node of just this name; answers (path, stat)."""
        return Create2(path, data, self._acl, _EPHEMERAL)

    def persistent(self, path: str, data: bytes, *, sequential: bool = False) -> Any:
        """Create a node that outlives the session; answers (path, stat)."""
        flags = _PERSISTENT_SEQUENTIAL if sequential else _PERSISTENT
        return Create2(path, data, self._acl, flags)

    def container(self, path: str) -> Any:
        """Create a node that the server removes after its last child has gone."""
        return _CreateContainer(path, b"", self._acl, _CONTAINER)

    def listing(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        """List the names of the children.

        :param changed: called at the next change of these names, as `reading` does
        """
        return GetChildren(path, None if changed is None else _watcher(changed))

    def reading(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        """Read a node; answers (data, stat).

        :param changed: called at its next change, with whether it was deleted; and with False when
            the connection, and the watch with it, is lost
        """
        return GetData(path, None if changed is None else _watcher(changed))

    def writing(self, path: str, data: bytes, version: int) -> Any:
        """Replace a node's data if it has this version, -1 for any; answers the stat."""
        return SetData(path, data, version)

    def acl_reading(self, path: str) -> Any:
        """Read a node's ACL; answers (acl, stat)."""
        return GetACL(path)

    def creation(self, path: str) -> Any:
        """Create a node that outlives the session, without data; a step of a `multi`."""
        return Create(path, b"", self._acl, _PERSISTENT)

    def presence(self, path: str) -> Any:
        """Require that the node exists; a step of a `multi`."""
        return CheckVersion(path, -1)

    def multi(self, steps: list[Any]) -> Any:
        """Carry out all steps or none; answers the list of their outcomes."""
        return Transaction(steps)

    def syncing(self, path: str) -> Any:
        """Let the server catch up with all that was acknowledged before.

        By a write: a deposed leader answers a ``sync`` (ZOOKEEPER-1675, -2136), and does not know
        what others have acknowledged since. Source: ``Leader.processSync`` needs no quorum.
        """
        return self.proof(path, by_write=True)

    def proof(self, path: str, *, by_write: bool) -> Any:
        """Ask for an answer that only a server in touch with the leader gives: a sync or a write.

        A deposed leader still answers a sync for a while. It never answers a write. The write is a
        transaction that changes nothing: it checks whether the node `path` exists.
        `client.refusal` reads the answer.
        """
        return self.multi([self.presence(path)]) if by_write else Sync(path)

    def deletion(self, path: str, version: int = -1) -> Any:
        """Delete a node that has no children, if it has this version, -1 for any."""
        return Delete(path, version)

    def unwatching(self, path: str, *, children: bool = False) -> Any:
        """Remove this connection's watches on a node's data, or on the names of its children."""
        return _RemoveWatches(path, children=children)


def _watcher(changed: Callable[[bool], None]) -> Callable[[Any], None]:
    return lambda event: changed(event.type == EventType.DELETED)


def access_list(conf: Configuration) -> AccessList:
    """Return the ACL for new nodes."""
    if conf.acl == "open":
        return AccessList(OPEN_ACL_UNSAFE)
    if conf.acl == "creator":
        return AccessList(CREATOR_ALL_ACL)
    if isinstance(conf.acl, Mapping):
        return AccessList(
            ACL(bits(may), Id(scheme, name))
            for role, may in ROLES.items()
            for scheme, name in conf.acl.get(role, ())
        )
    return AccessList(conf.acl)
