"""A ZooKeeper tree in memory: nodes, sessions, sequences, containers and watches, as a server has.

It stands in for a *server*; what stands in for the client is in `memory_client`. Only what distlock
asks of a server is here, and that behaves as ZooKeeper 3.8 does: a test applies the same operations
to both and compares every answer, stat, error and event. ACLs are not looked at.

Source: ZooKeeper's ``PrepRequestProcessor``, ``DataTree`` and ``ContainerManager``.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from kazoo.exceptions import (
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NoWatcherError,
    SessionExpiredError,
)
from kazoo.protocol.states import EventType, ZnodeStat

from distlock.keys.limits import MAX_INT, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How long an empty container stays, in seconds. The test servers look for them as often.
REAP_SECONDS: Final = 1.0


class Listener(Protocol):
    """The connection of a session, which the tree notifies of changes."""

    def event(self, kind: str, path: str) -> None:
        """Take a watch event; called with the tree's lock held, so it may only be noted."""


@dataclass(frozen=True, slots=True)
class _Node:
    """One version of a node. Changes make a new one, so that they can be undone."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    owner: int = 0
    version: int = 0
    #: How many children were ever made, which is the next one's sequence number.
    made: int = 0
    container: bool = False

    def stat(self, children: int) -> ZnodeStat:
        return ZnodeStat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime=self.ctime,
            mtime=self.mtime,
            version=self.version,
            cversion=signed(2 * self.made - children),
            aversion=0,
            ephemeralOwner=self.owner,
            dataLength=len(self.data),
            numChildren=children,
            pzxid=self.pzxid,
        )


class MemoryTree:
    """The nodes and sessions of one make-believe server; its methods may be called by any thread.

    Each change is a transaction: `transaction` puts several into one, all or none.
    """

    def __init__(self) -> None:
        #: Held while something is asked or changed, so that whoever holds it sees one state.
        self.lock = threading.RLock()
        #: The process that has this tree: a forked child has a copy, which nobody shares.
        self.pid = os.getpid()
        #: Set when nobody needs the tree any more.
        self.closed = threading.Event()
        #: How long an empty container stays, in seconds.
        self.reap_after = REAP_SECONDS
        self._zxid = 0
        self._nodes: dict[str, _Node] = {}
        self._children: dict[str, set[str]] = {}
        self._sessions: dict[int, Listener] = {}
        #: Watches: (path, whether the names of its children) → session ids, first come first.
        self._watches: dict[tuple[str, bool], dict[int, None]] = {}
        self._depth = 0
        self._undo: list[tuple[str, _Node | None]] = []
        self._events: list[tuple[str, str]] = []
        self._reaped_at = time.monotonic()
        for path in ("/", "/zookeeper"):
            self._set(path, self._new(b""))

    # --- sessions --------------------------------------------------------------------------------

    def open_session(self, listener: Listener) -> int:
        """Begin a session and return its id."""
        with self.transaction():
            session_id = 0x100000000000000 + self._zxid
            self._sessions[session_id] = listener
            return session_id

    def alive(self, session_id: int) -> bool:
        """Whether there is such a session."""
        return session_id in self._sessions

    def end_session(self, session_id: int) -> None:
        """End a session, by a good-bye or by expiry: its ephemeral nodes go with it."""
        with self.transaction():
            self.disconnect(session_id)
            self._sessions.pop(session_id, None)
            for path in [path for path, node in self._nodes.items() if node.owner == session_id]:
                self._delete(path)

    def disconnect(self, session_id: int) -> None:
        """Forget the watches of a connection, as a server does that loses it."""
        with self.lock:
            for watch in [watch for watch, ids in self._watches.items() if session_id in ids]:
                self._unwatch(watch, session_id)

    # --- reading ---------------------------------------------------------------------------------

    def read(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Return a node's data and stat.

        :raises NoNodeError: there is no such node; so all methods do
        """
        with self.lock:
            node = self._node(path)
            return node.data, node.stat(len(self._children[path]))

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, in no order."""
        with self.lock:
            self._node(path)
            return list(self._children[path])

    def watch(self, path: str, session_id: int, *, children: bool = False) -> None:
        """Tell a session of the next change of a node's data, or of its children's names."""
        with self.lock:
            self._node(path)
            self._watches.setdefault((path, children), {})[session_id] = None

    def unwatch(self, path: str, session_id: int, *, children: bool = False) -> None:
        """Take a watch back.

        :raises NoWatcherError: there is none
        """
        with self.lock:
            if session_id not in self._watches.get((path, children), ()):
                raise NoWatcherError
            self._unwatch((path, children), session_id)

    def watchers(self) -> dict[str, list[int]]:
        """Return which sessions watch each path."""
        with self.lock:
            found: dict[str, list[int]] = {}
            for (path, _), ids in self._watches.items():
                found[path] = sorted({*found.get(path, ()), *ids})
            return found

    # --- writing ---------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        owner: int = 0,
        sequential: bool = False,
        container: bool = False,
    ) -> str:
        """Make a node and return its path.

        :param owner: the id of the session with which it goes
        :param sequential: append the number that the parent has counted
        :raises NodeExistsError: there is one already
        :raises NoChildrenForEphemeralsError: its parent is one
        """
        with self.transaction():
            if owner and not self.alive(owner):
                raise SessionExpiredError
            above = _parent(path)
            parent = self._node(above)
            if sequential:
                path = f"{path}{parent.made:010d}"
            if path in self._nodes:
                raise NodeExistsError
            if parent.owner:
                raise NoChildrenForEphemeralsError
            self._put(above, replace(parent, made=min(parent.made + 1, MAX_INT), pzxid=self._zxid))
            self._put(path, replace(self._new(data), owner=owner, container=container))
            self._events += [(EventType.CREATED, path), (EventType.CHILD, above)]
            return path

    def write(self, path: str, data: bytes, version: int = -1) -> ZnodeStat:
        """Replace a node's data and return its stat.

        :raises BadVersionError: it has another version
        """
        with self.transaction():
            node = self.check(path, version)
            self._put(
                path,
                replace(
                    node,
                    data=data,
                    version=signed(node.version + 1),
                    mzxid=self._zxid,
                    mtime=_milliseconds(),
                ),
            )
            self._events.append((EventType.CHANGED, path))
            return self.read(path)[1]

    def delete(self, path: str, version: int = -1) -> None:
        """Remove a node.

        :raises BadVersionError: it has another version
        :raises NotEmptyError: it has children
        """
        with self.transaction():
            self.check(path, version)
            if self._children[path]:
                raise NotEmptyError
            self._delete(path)

    def check(self, path: str, version: int = -1) -> _Node:
        """Go on only if the node has this version, -1 for any.

        :raises BadVersionError: it has another version
        """
        with self.lock:
            node = self._node(path)
            if version not in (-1, node.version):
                raise BadVersionError
            return node

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Carry out what the block does as one change, or nothing of it where it raises.

        Watches fire at its end.
        """
        with self.lock:
            if not self._depth:
                self._zxid += 1
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

    # --- containers ------------------------------------------------------------------------------

    def reap_when_due(self) -> None:
        """Remove empty containers, if that was last done a while ago."""
        if time.monotonic() - self._reaped_at >= self.reap_after:
            self.reap()

    def reap(self) -> None:
        """Remove the containers that have no child any more, but had one."""
        with self.lock:
            self._reaped_at = time.monotonic()
            for path, node in list(self._nodes.items()):
                if node.container and node.made and not self._children[path]:
                    self.delete(path)

    def count_from(self, path: str, number: int) -> None:
        """Let the next sequence number under a node be `number`, which no server can be told.

        :param number: from 0 to `MAX_INT`
        """
        if not 0 <= number <= MAX_INT:
            raise ValueError(f"number is {number}: give one from 0 to {MAX_INT}.")
        with self.transaction():
            self._put(path, replace(self._node(path), made=number))

    # --- how it works ----------------------------------------------------------------------------

    def _node(self, path: str) -> _Node:
        try:
            return self._nodes[path]
        except KeyError:
            raise NoNodeError from None

    def _new(self, data: bytes) -> _Node:
        zxid, at = self._zxid, _milliseconds()
        return _Node(data=data, czxid=zxid, mzxid=zxid, pzxid=zxid, ctime=at, mtime=at)

    def _delete(self, path: str) -> None:
        above = _parent(path)
        self._put(path, None)
        self._put(above, replace(self._node(above), pzxid=self._zxid))
        self._events += [(EventType.DELETED, path), (EventType.CHILD, above)]

    def _put(self, path: str, node: _Node | None) -> None:
        self._undo.append((path, self._nodes.get(path)))
        self._set(path, node)

    def _set(self, path: str, node: _Node | None) -> None:
        above, _, name = path.rpartition("/")
        siblings = self._children.get(above or "/", set())
        if node is None:
            del self._nodes[path], self._children[path]
            siblings.discard(name)
        else:
            self._nodes[path] = node
            self._children.setdefault(path, set())
            if name:
                siblings.add(name)

    def _roll_back(self) -> None:
        for path, node in reversed(self._undo):
            self._set(path, node)
        self._undo.clear()
        self._events.clear()

    def _commit(self) -> None:
        self._undo.clear()
        events, self._events = self._events, []
        for kind, path in events:
            told: dict[int, None] = {}
            if kind != EventType.CHILD:
                told |= self._watches.pop((path, False), {})
            if kind in (EventType.CHILD, EventType.DELETED):
                told |= self._watches.pop((path, True), {})
            for session_id in told:
                self._sessions[session_id].event(kind, path)

    def _unwatch(self, watch: tuple[str, bool], session_id: int) -> None:
        self._watches[watch].pop(session_id)
        if not self._watches[watch]:
            del self._watches[watch]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _milliseconds() -> int:
    return int(time.time() * 1000)
