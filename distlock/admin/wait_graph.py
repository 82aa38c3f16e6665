"""Looks for deadlocks once for all open admin pages."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from distlock.conf import configuration
from distlock.inspection import wait_graph
from distlock.inspection.tree import snapshot
from distlock.locks.deadlocks import BUDGET_SECONDS

if TYPE_CHECKING:
    from distlock.inspection.state import Snapshot

#: The least time that the result of a look is shown, in seconds, and as a multiple of its duration.
KNOWN_SECONDS: Final = 1.5
KNOWN_TIMES: Final = 10

#: The way a deadlock will end: its newest waiter gives way ``soon``, or should have (``late``);
#: detection is ``off``; or it is a ``semaphore``'s, which detection does not count.
Prospect: TypeAlias = Literal["soon", "late", "off", "semaphore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Circles:
    """The result of a look at the wait-for graph.

    :ivar whole: False if not all keys could be read
    :ivar after: the setting ``DEADLOCK_AFTER``
    """

    cycles: list[wait_graph.Cycle]
    whole: bool
    after: float | None

    def prospect(self, cycle: wait_graph.Cycle) -> Prospect:
        """Return how a deadlock will end."""
        if self.after is None:
            return "off"
        if not cycle.certain:
            return "semaphore"
        # A look that failed is repeated once more after the same time.
        late = 2 * self.after + BUDGET_SECONDS
        return "late" if (cycle.youngest.seconds or 0) > late else "soon"


_known: dict[tuple[int, str, str], tuple[float, Circles]] = {}


def circles(using: str, budget: float, seen: Snapshot | None = None) -> Circles:
    """Return the deadlocks.

    :param using: the alias in ``DISTLOCK``
    :param budget: seconds for the look
    :param seen: all locks of the namespace with all participants, if the caller has them
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    conf = configuration(using)
    place = os.getpid(), conf.hosts, conf.namespace
    until, known = _known.get(place, (0.0, None))
    started = time.monotonic()
    if known is not None and started < until:
        return known
    each = max(budget, 0.3) / 3
    if seen is None:
        seen = snapshot(using, depth=None, budget=each)
    # Nodes read one after the other may show a cycle that never was: `deadlocks` looks again.
    found = wait_graph.cycles(seen.locks) and wait_graph.deadlocks(using, budget=each)
    now = time.monotonic()
    known = Circles(
        cycles=found,
        whole=not seen.cut,
        after=conf.deadlock_after,
    )
    _known[place] = now + max(KNOWN_SECONDS, KNOWN_TIMES * (now - started)), known
    return known
