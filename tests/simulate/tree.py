"""The nodes of one server, and its transactions.

A leader works out once what a request changes (`Plan`), and each server carries that out
(`Tree.apply`), as in ZooKeeper's ``PrepRequestProcessor`` and ``DataTree.processTxn``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.engine.errors import BadVersion, NodeExists, NoNode, NotEmpty
from distlock.engine.kazoo import RolledBackError, RuntimeInconsistency
from distlock.engine.protocol import CONTAINER, EPHEMERAL, SEQUENTIAL

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class Node(NamedTuple):
    """One version of a node; it is also its stat, so some of its fields have kazoo's names."""

    czxid: int
    mzxid: int
    mtime: int
    version: int = 0
    ephemeralOwner: int = 0  # noqa: N815
    numChildren: int = 0  # noqa: N815
    data: bytes = b""
    container: bool = False
    #: How many children were ever made.
    made: int = 0

    @property
    def aversion(self) -> int:
        """Return the version of its ACL, which nobody changes."""
        return 0


#: What becomes of a path: how (``create``, ``delete``, ``write``, or ``count`` for a parent), at
#: which path, and the new node.
Change = tuple[str, str, "Node | None"]


class Txn(NamedTuple):
    """A transaction, as the servers replicate it.

    :ivar origin: the server, its connection and the number of the request; None for nobody's
    :ivar opens: the timeout of the session that begins
    :ivar outcome: the answer, and the error
    """

    zxid: int
    session: int = 0
    changes: tuple[Change, ...] = ()
    origin: Any = None
    opens: float | None = None
    closes: bool = False
    outcome: tuple[Any, Exception | None] = (None, None)


class Plan:
    """What a request changes, over nodes that are not changed yet."""

    def __init__(self, nodes: dict[str, Node], zxid: int, time: float, session: int) -> None:
        self._nodes = nodes
        self._zxid = zxid
        self._time = int(time * 1000)
        self._session = session
        self._new: dict[str, Node | None] = {}
        self.changes: list[Change] = []

    def make(self, request: tuple[Any, ...]) -> tuple[Any, Exception | None]:
        """Work a request out, and return its outcome."""
        kind, *arguments = request
        try:
            return getattr(self, f"_{kind}")(*arguments), None
        except Exception as error:  # noqa: BLE001 - the server's answer
            self.changes.clear()
            return None, error

    def end(self) -> None:
        """Delete the nodes of the session."""
        for path in [p for p, n in self._nodes.items() if n.ephemeralOwner == self._session]:
            self._delete(path, -1)

    def _node(self, path: str, version: int = -1) -> Node:
        node = self._new[path] if path in self._new else self._nodes.get(path)
        if node is None:
            raise NoNode
        if version not in (-1, node.version):
            raise BadVersion
        return node

    def _put(self, how: str, path: str, node: Node | None) -> None:
        self._new[path] = node
        self.changes.append((how, path, node))

    def _count(self, path: str, more: int) -> None:
        node = self._node(path)
        made, children = node.made + max(more, 0), node.numChildren + more
        self._put("count", path, node._replace(made=made, numChildren=children))

    def _create(self, path: str, data: bytes, flags: int) -> tuple[str, Node]:
        above = parent(path)
        made = self._node(above).made
        if flags & SEQUENTIAL:
            path = f"{path}{made:010d}"
        if (self._new[path] if path in self._new else self._nodes.get(path)) is not None:
            raise NodeExists
        owner = self._session if flags & EPHEMERAL and flags != CONTAINER else 0
        container = flags == CONTAINER
        node = Node(self._zxid, self._zxid, self._time, 0, owner, 0, data, container)
        self._put("create", path, node)
        self._count(above, 1)
        return path, node

    def _delete(self, path: str, version: int) -> bool:
        if self._node(path, version).numChildren:
            raise NotEmpty
        self._put("delete", path, None)
        self._count(parent(path), -1)
        return True

    def _write(self, path: str, data: bytes, version: int) -> Node:
        node = self._node(path, version)
        node = node._replace(
            version=node.version + 1, mzxid=self._zxid, mtime=self._time, data=data
        )
        self._put("write", path, node)
        return node

    def _check(self, path: str) -> bool:
        self._node(path)
        return True

    def _multi(self, steps: list[tuple[Any, ...]]) -> list[Any]:
        outcomes: list[Any] = []
        for number, (kind, *arguments) in enumerate(steps):
            try:
                outcomes.append(getattr(self, f"_{kind}")(*arguments))
            except Exception as error:  # noqa: BLE001 - as above
                self.changes.clear()
                late = len(steps) - number - 1
                return [RolledBackError()] * number + [error] + [RuntimeInconsistency()] * late
        return outcomes


class Tree:
    """The nodes of one server, its sessions, and who watches what there."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(0, 0, 0)}
        self.children: dict[str, dict[str, None]] = {}
        #: Session → its first timeout.
        self.sessions: dict[int, float] = {}
        self.zxid = 0
        #: By path, and whether the names of its children are watched: who watches.
        self.watches: dict[tuple[str, bool], dict[Hashable, None]] = {}

    def copy(self) -> Tree:
        """Return a tree with the same nodes and sessions, which nobody watches."""
        other = Tree()
        other.nodes = dict(self.nodes)
        other.children = {path: dict(names) for path, names in self.children.items()}
        other.sessions = dict(self.sessions)
        other.zxid = self.zxid
        return other

    def apply(self, txn: Txn, fire: Callable[[Any, str, str], None]) -> None:
        """Carry a transaction out, and call `fire` with each watcher, the event and its path."""
        self.zxid = txn.zxid
        if txn.opens is not None:
            self.sessions[txn.session] = txn.opens
        if txn.closes:
            self.sessions.pop(txn.session, None)
        for how, path, node in txn.changes:
            above, _, name = path.rpartition("/")
            if node is None:
                self.nodes.pop(path, None)
                self.children.pop(path, None)
                self.children[above].pop(name, None)
            else:
                self.nodes[path] = node
                if how == "create":
                    self.children.setdefault(above, {})[name] = None
        for how, path, _ in txn.changes:
            if how == "write":
                self._fire(fire, "changed", (path, False))
            elif how == "delete":
                self._fire(fire, "deleted", (path, False), (path, True))
            if how in ("create", "delete"):
                self._fire(fire, "child", (parent(path), True))

    def _fire(
        self, fire: Callable[[Any, str, str], None], event: str, *watches: tuple[str, bool]
    ) -> None:
        heard: dict[Hashable, None] = {}
        for watch in watches:
            heard |= self.watches.pop(watch, {})
        for watcher in heard:
            fire(watcher, event, watches[0][0])

    def read(self, watcher: Hashable, kind: str, path: str, watch: bool) -> Any:
        """Read a node, or list its children, and perhaps watch that.

        :raises NoNode: there is none
        """
        node = self.nodes.get(path)
        if node is None:
            raise NoNode
        listing = kind == "list"
        if watch:
            self.watches.setdefault((path, listing), {})[watcher] = None
        return list(self.children.get(path, ())) if listing else (node.data, node)

    def unwatch(self, watcher: Hashable, path: str | None = None, children: bool = False) -> None:
        """Remove a watch of somebody, or without a path all."""
        for watch in [(path, children)] if path is not None else list(self.watches):
            watchers = self.watches.get(watch, {})
            watchers.pop(watcher, None)
            if not watchers:
                self.watches.pop(watch, None)


def parent(path: str) -> str:
    """Return the path of the node above."""
    return path.rpartition("/")[0] or "/"
