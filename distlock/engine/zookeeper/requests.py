"""Makes the requests to ZooKeeper. kazoo has no API for some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from distlock.engine import kazoo
from distlock.engine.protocol import CONTAINER
from distlock.jute import pack_integer, pack_text
from distlock.keys.limits import LONGEST_MESSAGE

from .messages import AccessList, Create2, Delete, GetChildren, GetData
from .settings import BITS, ROLES

if TYPE_CHECKING:
    from distlock.engine.protocol import Configuration

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
    """Makes the requests that a client sends; `distlock.engine.protocol` tells of each."""

    #: None: each create renews the session, as far as the session deadline counts it.
    renewed_at: float | None = None
    tells_the_rest = False
    #: The client on the same session that users have.
    shared: Any = None
    _acl: AccessList

    def node(self, path: str, data: bytes = b"", flags: int = 0) -> Any:
        kind = _CreateContainer if flags & CONTAINER else Create2
        return kind(path, data, self._acl, flags)

    def listing(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return GetChildren(path, None if changed is None else _watcher(changed))

    def reading(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return GetData(path, None if changed is None else _watcher(changed))

    def writing(self, path: str, data: bytes, version: int) -> Any:
        return kazoo.SetData(path, data, version)

    def presence(self, path: str) -> Any:
        return kazoo.CheckVersion(path, -1)

    def multi(self, steps: list[Any]) -> Any:
        # kazoo cannot read the answer to a Create2 there.
        return kazoo.Transaction(
            [kazoo.Create(*step) if isinstance(step, Create2) else step for step in steps]
        )

    def proof(self, path: str, *, by_write: bool) -> Any:
        """Ask for an answer that only a server in touch with the leader gives: a sync or a write.

        A deposed leader still answers a sync for a while (ZOOKEEPER-1675, -2136;
        ``Leader.processSync`` needs no quorum), and does not know what others have written since.
        It never answers a write. The write is a transaction that changes nothing: it checks whether
        the node `path` exists. `errors.refusal` reads the answer.
        """
        return self.multi([self.presence(path)]) if by_write else kazoo.Sync(path)

    def deletion(self, path: str, version: int = -1) -> Any:
        return Delete(path, version)

    def unwatching(self, path: str, *, children: bool = False) -> Any:
        if self.shared is not None and self.shared.watches(path, children=children):
            return kazoo.Sync(path)  # the users' client needs the watch
        return _RemoveWatches(path, children=children)


def _watcher(changed: Callable[[bool], None]) -> Callable[[Any], None]:
    return lambda event: changed(event.type == kazoo.EventType.DELETED)


def access_list(conf: Configuration) -> AccessList:
    """Return the ACL for new nodes."""
    if conf.acl == "open":
        return AccessList(kazoo.OPEN_ACL_UNSAFE)
    if conf.acl == "creator":
        return AccessList(kazoo.CREATOR_ALL_ACL)
    if isinstance(conf.acl, Mapping):
        return AccessList(
            kazoo.ACL(sum(map(BITS.__getitem__, may)), kazoo.Id(scheme, name))
            for role, may in ROLES.items()
            for scheme, name in conf.acl.get(role, ())
        )
    return AccessList(conf.acl)
