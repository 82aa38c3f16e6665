"""The contenders of one process in one line: who hands the lock to whom without the server.

The server numbers the nodes of a line without gaps, also over those that were deleted. So nobody is
between two numbers that follow each other in one line. An operator may remove a line, though, and
the next one under its path counts from 0 again: a number alone identifies nobody, so `machine`
also compares the node's name, or how old the line is. The driver watches the line's own node for
that, so its age is read once for many neighbours.

A node is here from the answer to its create until its contender gives it up. A holder that releases
the lock before its neighbour has come leaves the lock here: the entry stays, with the epoch of the
grant, until the neighbour comes or the node's deletion is acknowledged. With the connection the
order of all answers is lost, and the driver clears the line.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from .events import number_in

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from .events import Node


class Local:
    """A node of this process.

    :ivar follower: the contender that waits behind it, and hears when it is given up
    :ivar released: the epoch of the grant that its contender has left for the next one
    :ivar deleted: whether its deletion is acknowledged, and its contender has not heard of `Leave`
    """

    __slots__ = ("contender", "deleted", "follower", "name", "released", "token")

    def __init__(self, name: str, token: int, contender: Hashable = None) -> None:
        self.name = name
        self.token = token
        self.contender = contender
        self.follower: Hashable = None
        self.released: int | None = None
        self.deleted = False


class Line(NamedTuple):
    """The line's own node, which this process watches."""

    #: Its czxid.
    token: float = inf
    #: Called when the node has changed, or the watch is lost.
    changed: Callable[[bool], None] = lambda _: None


class LocalLine:
    """The nodes of this process in one line, by their numbers; changed on one thread only.

    :param nodes: those of all lines of the session
    :param lines: the lines' own nodes that are watched, by their paths
    """

    __slots__ = ("lines", "nodes", "path")

    def __init__(
        self,
        nodes: dict[tuple[str, int], Local] | None = None,
        lines: dict[str, Line] | None = None,
        path: str = "",
    ) -> None:
        self.nodes = {} if nodes is None else nodes
        self.lines = {} if lines is None else lines
        self.path = path

    def enter(self, node: Node, contender: Hashable = None) -> None:
        """Add a node that the server has just created."""
        self.nodes[self.path, node.number] = Local(node.name, node.token, contender)

    def at(self, number: int) -> Local | None:
        """Return the node with this number, None for no node of ours."""
        return self.nodes.get((self.path, number))

    def is_current(self, local: Local) -> bool:
        """Whether the line of now is known to be older than this node, which is then in it."""
        line = self.lines.get(self.path)
        return line is not None and line.token < local.token

    def take(self, number: int) -> None:
        """Take the lock that was left with this number."""
        del self.nodes[self.path, number]

    def leave(self, node: Node, epoch: int | None = None) -> Hashable:
        """Give a node up and return its follower.

        :param epoch: of the grant that is handed over; it stays here if nobody follows
        """
        key = self.path, node.number
        local = self.nodes.get(key)
        if local is None or local.name != node.name:
            return None
        if epoch is not None and local.follower is None and not local.deleted:
            local.released = epoch
        else:
            del self.nodes[key]
        return local.follower

    def unfollow(self, name: str, follower: Hashable) -> None:
        """Let `follower` hear no more of the node `name`."""
        key = self.path, number_in(name)
        local = self.nodes.get(key)
        if local is not None and local.name == name and local.follower == follower:
            local.follower = None

    def forget(self, name: str) -> None:
        """Remove what was left with a node, whose deletion is acknowledged."""
        key = self.path, number_in(name)
        local = self.nodes.get(key)
        if local is None or local.name != name:
            return
        if local.released is None:  # the follower is still to be told, by `leave`
            local.deleted = True
        else:
            del self.nodes[key]

    def clear(self) -> None:
        """Remove all, of all lines: the connection is lost."""
        self.nodes.clear()
        self.lines.clear()
