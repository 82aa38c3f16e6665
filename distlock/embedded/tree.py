"""The nodes of a server, its transactions, and who watches what.

As in ZooKeeper 3.9, a session may have several kinds of watches on one path. In 3.8, the later one
takes the place of a persistent one (ZOOKEEPER-4466).

Source: ZooKeeper's ``DataTree``, ``WatchManager`` and ``ContainerManager``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final, NamedTuple

from distlock.keys.limits import MAX_INT, signed

from .rules import OPEN, READ_ONLY, Acl, Code, Refused
from .rules import parent as parent_of

#: How often what goes by itself is looked for, in seconds (``znode.container.checkIntervalMs``).
REAP_SECONDS: Final = 60.0
#: The nodes that are always there (``DataTree.isSpecialPath``).
SYSTEM_NODES: Final = ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")


class Kind(IntEnum):
    """The kinds of watches, with ZooKeeper's numbers (``Watcher.WatcherType``)."""

    #: Fires once, when the names of the children change or the node goes.
    CHILDREN = 1
    #: Fires once, when the node comes, changes or goes.
    DATA = 2
    #: Stays, and hears of all that the two hear of.
    PERSISTENT = 4
    #: Stays, and hears of the node and of all nodes below it coming, changing and going.
    RECURSIVE = 5


class Event(IntEnum):
    """The kinds of watch events, with ZooKeeper's numbers (``Watcher.Event.EventType``)."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    #: The names of the children have changed.
    CHILD = 4


#: Event → the watches on its path that it ends.
_ENDS: Final = {
    Event.CREATED: (Kind.DATA,),
    Event.CHANGED: (Kind.DATA,),
    Event.DELETED: (Kind.DATA, Kind.CHILDREN),
    Event.CHILD: (Kind.CHILDREN,),
}


class Stat(NamedTuple):
    """The facts that clients read beside the data, in the order of the message."""

    czxid: int = 0
    mzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    cversion: int = 0
    aversion: int = 0
    owner: int = 0
    length: int = 0
    children: int = 0
    pzxid: int = 0


class Node(NamedTuple):
    """One version of a node. Changes make a new one, so that they can be undone."""

    stat: Stat = Stat()
    data: bytes | None = b""
    #: How many children were ever made, which is the next one's sequence number.
    made: int = 0
    container: bool = False
    acl: Acl = OPEN


class MemoryTree:
    """The nodes and watches of one server; its methods may be called by any thread.

    Each change is a transaction: `transaction` puts several into one, all or none. A change of a
    node that is missing, or has another version, raises `Refused`.

    :param zxid: its transactions have greater ids
    """

    def __init__(self, zxid: int = 0) -> None:
        #: Held while something is asked or changed, so that whoever holds it sees one state.
        self.lock = threading.RLock()
        #: An empty container stays for so many seconds, at most.
        self.reap_after = REAP_SECONDS
        #: The id of the last transaction.
        self.zxid = zxid
        #: Session → what notes its watch events; called with the lock held.
        self.listeners: dict[int, Callable[[Event, str, Acl], None]] = {}
        self._nodes: dict[str, Node] = {}
        #: Path → the names of the children; leaves are missing.
        self._children: dict[str, set[str]] = {}
        #: Path and kind → session ids, first come first. The node need not exist.
        self._watches: dict[tuple[str, Kind], dict[int, None]] = {}
        self._depth = 0
        self._undo: list[tuple[str, Node | None]] = []
        self._events: list[tuple[Event, str, Acl]] = []
        self._reaped_at = time.monotonic()
        self._set("/", Node(Stat(cversion=-1, children=1)))
        self._set("/zookeeper", Node(Stat(cversion=-2, children=2)))
        self._set("/zookeeper/config", Node(Stat(aversion=-1), acl=READ_ONLY))
        self._set("/zookeeper/quota", Node())

    def read(self, path: str) -> tuple[bytes | None, Stat]:
        """Return a node's data and stat."""
        node = self.check(path)
        return node.data, node.stat

    def acl(self, path: str) -> Acl:
        """Return who may do what with a node."""
        return self.check(path).acl

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, in no order."""
        with self.lock:
            self.check(path)
            return list(self._children.get(path, ()))

    def ephemerals(self) -> dict[int, list[str]]:
        """Return the ephemeral nodes of each session that has some."""
        found: dict[int, list[str]] = {}
        with self.lock:
            for path, node in self._nodes.items():
                if node.stat.owner:
                    found.setdefault(node.stat.owner, []).append(path)
        return found

    def check(self, path: str, version: int = -1) -> Node:
        """Return a node of this version; -1 stands for any."""
        with self.lock:
            node = self._nodes.get(path)
            if node is None:
                raise Refused(Code.NO_NODE)
            if version not in (-1, node.stat.version):
                raise Refused(Code.BAD_VERSION)
            return node

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        owner: int = 0,
        sequential: bool = False,
        container: bool = False,
        acl: Acl = OPEN,
    ) -> str:
        """Make a node and return its path.

        :param owner: the id of the session with which it goes
        :param sequential: append the number that the parent has counted
        :param container: it goes when its last child has gone
        """
        with self.transaction():
            if owner and owner not in self.listeners:
                raise Refused(Code.SESSION_EXPIRED)
            above = parent_of(path)
            parent = self.check(above)
            if sequential:
                path = f"{path}{parent.made:010d}"
            if path in self._nodes:
                raise Refused(Code.NODE_EXISTS)
            if parent.stat.owner:
                raise Refused(Code.NO_CHILDREN_FOR_EPHEMERALS)
            zxid, now, length = self.zxid, _milliseconds(), len(data or b"")
            stat = Stat(zxid, zxid, now, now, owner=owner, length=length, pzxid=zxid)
            self._put(path, Node(stat, data, container=container, acl=acl))
            self._events.append((Event.CREATED, path, acl))
            self._count(above, 1)
            return path

    def write(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        """Replace a node's data and return its stat."""
        with self.transaction():
            node = self.check(path, version)
            stat = node.stat._replace(
                version=signed(node.stat.version + 1),
                mzxid=self.zxid,
                mtime=_milliseconds(),
                length=len(data or b""),
            )
            self._put(path, node._replace(data=data, stat=stat))
            self._events.append((Event.CHANGED, path, node.acl))
            return stat

    def set_acl(self, path: str, acl: Acl, version: int = -1) -> Stat:
        """Replace a node's ACL, if that has this version, and return its stat."""
        with self.transaction():
            node = self.check(path)
            if version not in (-1, node.stat.aversion):
                raise Refused(Code.BAD_VERSION)
            stat = node.stat._replace(aversion=signed(node.stat.aversion + 1))
            self._put(path, node._replace(acl=acl, stat=stat))
            return stat

    def delete(self, path: str, version: int = -1) -> None:
        """Remove a node without children."""
        with self.transaction():
            node = self.check(path, version)
            if node.stat.children:
                raise Refused(Code.NOT_EMPTY)
            self._put(path, None)
            self._events.append((Event.DELETED, path, node.acl))
            self._count(parent_of(path), -1)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Carry out what the block does as one change, or nothing of it where it raises."""
        with self.lock:
            if not self._depth:
                self.zxid += 1
            self._depth += 1
            try:
                yield
            except BaseException:
                if self._depth == 1:
                    self._roll_back()
                raise
            finally:
                self._depth -= 1
            if not self._depth:
                self._commit()

    def reap_when_due(self) -> None:
        """Remove empty containers, if that was last done a while ago."""
        if time.monotonic() - self._reaped_at >= self.reap_after:
            self.reap()

    def reap(self) -> None:
        """Remove containers that have no child any more, but had one."""
        with self.lock:
            self._reaped_at = time.monotonic()
            for path, node in list(self._nodes.items()):
                if node.container and node.made and not node.stat.children:
                    self.delete(path)

    def end_session(self, session_id: int) -> None:
        """End a session, by a good-bye or by expiry: its ephemeral nodes go with it."""
        with self.transaction():
            self.forget(session_id)
            self.listeners.pop(session_id, None)
            for path in self.ephemerals().get(session_id, ()):
                self.delete(path)

    def watch(self, path: str, kind: Kind, session_id: int) -> None:
        """Tell a session of the next change, or of all changes."""
        with self.lock:
            self._watches.setdefault((path, kind), {})[session_id] = None

    def watching(self, path: str, kinds: Iterable[Kind], session_id: int) -> list[Kind]:
        """Return those of the kinds that a session watches."""
        with self.lock:
            found = [kind for kind in kinds if session_id in self._watches.get((path, kind), ())]
        if not found:
            raise Refused(Code.NO_WATCHER)
        return found

    def unwatch(self, path: str, kinds: Iterable[Kind], session_id: int) -> None:
        """Take watches back."""
        with self.lock:
            for kind in self.watching(path, kinds, session_id):
                self._unwatch((path, kind), session_id)

    def forget(self, session_id: int) -> None:
        """Forget the watches of a session, as a server does that loses its connection."""
        with self.lock:
            for watch in [watch for watch, ids in self._watches.items() if session_id in ids]:
                self._unwatch(watch, session_id)

    def _count(self, path: str, more: int) -> None:
        """Let a node have one child more or less."""
        node = self.check(path)
        children = node.stat.children + more
        made = min(node.made + max(more, 0), MAX_INT)
        stat = node.stat._replace(
            cversion=signed(2 * made - children), children=children, pzxid=self.zxid
        )
        self._put(path, node._replace(stat=stat, made=made))
        self._events.append((Event.CHILD, path, node.acl))

    def _put(self, path: str, node: Node | None) -> None:
        self._undo.append((path, self._nodes.get(path)))
        self._set(path, node)

    def _set(self, path: str, node: Node | None) -> None:
        above, _, name = path.rpartition("/")
        if node is None:
            del self._nodes[path]
            self._children.pop(path, None)
            self._children[above or "/"].discard(name)
        else:
            self._nodes[path] = node
            if name:
                self._children.setdefault(above or "/", set()).add(name)

    def _roll_back(self) -> None:
        for path, node in reversed(self._undo):
            self._set(path, node)
        self._undo.clear()
        self._events.clear()

    def _commit(self) -> None:
        self._undo.clear()
        events, self._events = self._events, []
        for event, path, acl in events:
            for session_id in self._fire(event, path):
                self.listeners[session_id](event, path, acl)

    def _fire(self, event: Event, path: str) -> Iterable[int]:
        """Return the sessions that hear of an event, each once, and end watches that fire once."""
        heard: dict[int, None] = {}
        for kind in _ENDS[event]:
            heard |= self._watches.pop((path, kind), {})
        heard |= self._watches.get((path, Kind.PERSISTENT), {})
        above = "" if event == Event.CHILD else path
        while above:
            heard |= self._watches.get((above, Kind.RECURSIVE), {})
            above = parent_of(above) if above != "/" else ""
        return heard

    def _unwatch(self, watch: tuple[str, Kind], session_id: int) -> None:
        self._watches[watch].pop(session_id)
        if not self._watches[watch]:
            del self._watches[watch]


def _milliseconds() -> int:
    return int(time.time() * 1000)
