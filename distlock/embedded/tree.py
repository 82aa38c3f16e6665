"""A ZooKeeper tree in memory: nodes, sessions, sequences and containers, as a server has.

It behaves as ZooKeeper 3.8 does: tests apply the same operations to both and compare every answer,
stat, error and event. `requests` looks at access lists.

Source: ZooKeeper's ``PrepRequestProcessor``, ``DataTree`` and ``ContainerManager``.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from distlock.keys.limits import MAX_INT, signed

from .acl import OPEN, READ_ONLY
from .errors import Code, Refused
from .node import Node
from .paths import parent as parent_of
from .watches import Event, Watches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .acl import Acl
    from .node import Stat

#: How often what goes by itself is looked for, in seconds (``znode.container.checkIntervalMs``).
REAP_SECONDS: Final = 60.0
#: The nodes that are always there (``DataTree.isSpecialPath``).
SYSTEM_NODES: Final = ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")


class MemoryTree:
    """The nodes and sessions of one make-believe server; its methods may be called by any thread.

    Each change is a transaction: `transaction` puts several into one, all or none.
    """

    def __init__(self, zxid: int = 0) -> None:
        """Make an empty tree.

        :param zxid: its transactions have greater ids
        """
        #: Held while something is asked or changed, so that whoever holds it sees one state.
        self.lock = threading.RLock()
        #: The process that has this tree: a forked child has a copy, which nobody shares.
        self.pid = os.getpid()
        #: An empty container stays for so many seconds, at most.
        self.reap_after = REAP_SECONDS
        #: The id of the last transaction.
        self.zxid = zxid
        self._nodes: dict[str, Node] = {}
        #: Path → the names of the children; leaves are missing.
        self._children: dict[str, set[str]] = {}
        #: Session → what notes its watch events; called with the lock held.
        self.listeners: dict[int, Callable[[Event, str, Acl], None]] = {}
        #: To be asked and changed with the lock held.
        self.watches = Watches()
        self._depth = 0
        self._undo: list[tuple[str, Node | None]] = []
        self._events: list[tuple[Event, str, Acl]] = []
        self._reaped_at = time.monotonic()
        system = Node(b"", czxid=0, mzxid=0, pzxid=0, ctime=0, mtime=0)
        for path in SYSTEM_NODES:
            self._set(path, system)
        config = system._replace(acl=READ_ONLY, aversion=-1)
        self._set("/zookeeper/config", config)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._nodes)

    # --- sessions --------------------------------------------------------------------------------

    def end_session(self, session_id: int) -> None:
        """End a session, by a good-bye or by expiry: its ephemeral nodes go with it."""
        with self.transaction():
            self.watches.forget(session_id)
            self.listeners.pop(session_id, None)
            for path in self.ephemerals().get(session_id, ()):
                self._delete(path)

    # --- reading ---------------------------------------------------------------------------------

    def read(self, path: str) -> tuple[bytes | None, Stat]:
        """Return a node's data and stat.

        :raises Refused: there is no such node; so all methods do
        """
        with self.lock:
            node = self._node(path)
            return node.data, node.stat(len(self._children.get(path, ())))

    def acl(self, path: str) -> Acl:
        """Return who may do what with a node."""
        with self.lock:
            return self._node(path).acl

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, in no order."""
        with self.lock:
            self._node(path)
            return list(self._children.get(path, ()))

    def ephemerals(self) -> dict[int, list[str]]:
        """Return the ephemeral nodes of each session that has some."""
        found: dict[int, list[str]] = {}
        with self.lock:
            for path, node in self._nodes.items():
                if node.owner:
                    found.setdefault(node.owner, []).append(path)
        return found

    def watchers(self) -> dict[str, list[int]]:
        """Return which sessions watch each path."""
        with self.lock:
            return self.watches.by_path()

    # --- writing ---------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        owner: int = 0,
        sequential: bool = False,
        container: bool = False,
        ttl: int = 0,
        acl: Acl = OPEN,
    ) -> str:
        """Make a node and return its path.

        :param owner: the id of the session with which it goes
        :param sequential: append the number that the parent has counted
        :param container: it goes when its last child has gone
        :param ttl: the milliseconds after which it goes, if it has no children and nobody writes it
        :raises Refused: there is one already, or its parent is ephemeral
        """
        with self.transaction():
            if owner and owner not in self.listeners:
                raise Refused(Code.SESSION_EXPIRED)
            above = parent_of(path)
            parent = self._node(above)
            if sequential:
                path = f"{path}{parent.made:010d}"
            if path in self._nodes:
                raise Refused(Code.NODE_EXISTS)
            if parent.owner:
                raise Refused(Code.NO_CHILDREN_FOR_EPHEMERALS)
            made = min(parent.made + 1, MAX_INT)
            self._put(above, parent._replace(made=made, pzxid=self.zxid))
            node = self._new(data, owner=owner, container=container, ttl=ttl, acl=acl)
            self._put(path, node)
            self._events += [(Event.CREATED, path, acl), (Event.CHILD, above, parent.acl)]
            return path

    def write(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        """Replace a node's data and return its stat.

        :raises Refused: it has another version
        """
        with self.transaction():
            node = self.check(path, version)
            self._put(
                path,
                node._replace(
                    data=data,
                    version=signed(node.version + 1),
                    mzxid=self.zxid,
                    mtime=_milliseconds(),
                ),
            )
            self._events.append((Event.CHANGED, path, node.acl))
            return self.read(path)[1]

    def set_acl(self, path: str, acl: Acl, version: int = -1) -> Stat:
        """Replace a node's ACL and return its stat.

        :param version: of the ACL
        :raises Refused: the ACL has another version
        """
        with self.transaction():
            node = self._node(path)
            if version not in (-1, node.aversion):
                raise Refused(Code.BAD_VERSION)
            self._put(path, node._replace(acl=acl, aversion=signed(node.aversion + 1)))
            return self.read(path)[1]

    def delete(self, path: str, version: int = -1) -> None:
        """Remove a node.

        :raises Refused: it has another version, or children
        """
        with self.transaction():
            self.check(path, version)
            if self._children.get(path):
                raise Refused(Code.NOT_EMPTY)
            self._delete(path)

    def check(self, path: str, version: int = -1) -> Node:
        """Go on only if the node has this version, -1 for any.

        :raises Refused: it has another version
        """
        with self.lock:
            node = self._node(path)
            if version not in (-1, node.version):
                raise Refused(Code.BAD_VERSION)
            return node

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Carry out what the block does as one change, or nothing of it where it raises.

        Watches fire at its end.
        """
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

    # --- what goes by itself ---------------------------------------------------------------------

    def reap_when_due(self) -> None:
        """Remove what goes by itself, if that was last done a while ago."""
        if time.monotonic() - self._reaped_at >= self.reap_after:
            self.reap()

    def reap(self) -> None:
        """Remove containers that have no child any more, but had one, and nodes past their time."""
        with self.lock:
            self._reaped_at = time.monotonic()
            now = _milliseconds()
            for path, node in list(self._nodes.items()):
                if node.idle(now) and not self._children.get(path):
                    self.delete(path)

    def count_from(self, path: str, number: int) -> None:
        """Let the next sequence number under a node be `number`, which no server can be told.

        :param number: from 0 to `MAX_INT`
        """
        if not 0 <= number <= MAX_INT:
            raise ValueError(f"number is {number}: give one from 0 to {MAX_INT}.")
        with self.transaction():
            self._put(path, self._node(path)._replace(made=number))

    # --- how it works ----------------------------------------------------------------------------

    def _node(self, path: str) -> Node:
        try:
            return self._nodes[path]
        except KeyError:
            raise Refused(Code.NO_NODE) from None

    def _new(self, data: bytes | None, **more: Any) -> Node:
        zxid, at = self.zxid, _milliseconds()
        return Node(data, zxid, zxid, zxid, at, at, **more)

    def _delete(self, path: str) -> None:
        above = parent_of(path)
        acl, parent = self._node(path).acl, self._node(above)
        self._put(path, None)
        self._put(above, parent._replace(pzxid=self.zxid))
        self._events += [(Event.DELETED, path, acl), (Event.CHILD, above, parent.acl)]

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
        for kind, path, acl in events:
            for session_id in self.watches.fire(kind, path):
                self.listeners[session_id](kind, path, acl)


def _milliseconds() -> int:
    return int(time.time() * 1000)
