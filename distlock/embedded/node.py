"""The nodes of the tree: what each holds, and the stat that clients read."""

from __future__ import annotations

from typing import Final, NamedTuple

from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from distlock.keys.limits import signed

#: Anybody may do anything.
OPEN: Final[tuple[ACL, ...]] = tuple(OPEN_ACL_UNSAFE)


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
    acl: tuple[ACL, ...] = OPEN
    aversion: int = 0

    def stat(self, children: int) -> ZnodeStat:
        """Return the node's stat.

        :param children: how many it has
        """
        return ZnodeStat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime=self.ctime,
            mtime=self.mtime,
            version=self.version,
            cversion=signed(2 * self.made - children),
            aversion=self.aversion,
            ephemeralOwner=self.owner,
            dataLength=len(self.data or b""),
            numChildren=children,
            pzxid=self.pzxid,
        )

    def idle(self, now: int) -> bool:
        """Whether it goes by itself when it has no children.

        :param now: the time of day in milliseconds
        """
        return bool((self.container and self.made) or (self.ttl and now - self.mtime > self.ttl))
