"""The nodes of the tree: what each holds, and the stat that clients read."""

from __future__ import annotations

from typing import NamedTuple

from distlock.keys.limits import signed

from .acl import OPEN, Acl


class Stat(NamedTuple):
    """The facts that clients read beside the data, in the order of the message."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    length: int
    children: int
    pzxid: int


class Node(NamedTuple):
    """One version of a node. Changes make a new one, so that they can be undone."""

    data: bytes | None
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
    #: The milliseconds for which it stays without children and changes, 0 for ever.
    ttl: int = 0
    acl: Acl = OPEN
    aversion: int = 0

    def stat(self, children: int) -> Stat:
        """Return the node's stat.

        :param children: how many it has
        """
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            signed(2 * self.made - children),
            self.aversion,
            self.owner,
            len(self.data or b""),
            children,
            self.pzxid,
        )

    def idle(self, now: int) -> bool:
        """Whether it goes by itself when it has no children.

        :param now: the time of day in milliseconds
        """
        return bool((self.container and self.made) or (self.ttl and now - self.mtime > self.ttl))
