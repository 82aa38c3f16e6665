"""What is expected of a fleet, in formulas: sessions, requests, watches, memory, ensembles."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Who holds or waits sends a sign of life so often within a session timeout; who does neither,
#: kazoo's ping.
HEARTBEATS, PINGS = 6, 3
#: Requests of an acquire and its release: create, list, delete. Who has to wait also sets a watch,
#: and lists once more when it is woken.
UNCONTENDED, CONTENDED = 3, 5
WRITES = 2
#: Nodes of a lock that is held: its own, and its parent. The namespace is one more.
NODES = 2
#: How much of what a server can do it should have to do: the rest is for the bad days.
HEADROOM = 0.5


@dataclass(frozen=True)
class Costs:
    """What one of each costs a server, as measured.

    :ivar session, lock: bytes of its memory; a lock's are those of its two nodes and its watch
    :ivar writes: how many it can do in a second
    """

    session: float
    lock: float
    writes: float


@dataclass(frozen=True)
class Fleet:
    """Processes that use locks.

    :ivar busy: how many of them hold or await a lock at a time
    :ivar acquires: of all, per second
    :ivar contended: the part of the acquires that have to wait
    :ivar session_timeout: seconds
    """

    processes: int
    busy: int
    acquires: float
    contended: float = 0.0
    session_timeout: float = 10.0

    @property
    def signs_of_life(self) -> float:
        """Heartbeats and pings per second."""
        beats = HEARTBEATS * self.busy + PINGS * (self.processes - self.busy)
        return beats / self.session_timeout

    @property
    def writes(self) -> float:
        """Writes per second, on which the servers have to agree."""
        return WRITES * self.acquires

    @property
    def requests(self) -> float:
        """All requests per second."""
        each = UNCONTENDED + (CONTENDED - UNCONTENDED) * self.contended
        return each * self.acquires + self.signs_of_life

    @property
    def nodes(self) -> int:
        """The nodes of as many locks as there are busy processes, and of the namespace."""
        return NODES * self.busy + 1

    @property
    def watches(self) -> int:
        """At most one for each: a waiter's on the one ahead, a holder's on its own node."""
        return self.busy

    def memory(self, costs: Costs) -> float:
        """Bytes that the sessions and locks take in each server."""
        return self.processes * costs.session + self.busy * costs.lock

    def ensembles(self, costs: Costs) -> int:
        """Over how many ensembles the writes are to be spread."""
        return max(math.ceil(self.writes / (HEADROOM * costs.writes)), 1)
