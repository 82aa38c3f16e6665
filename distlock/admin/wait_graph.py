"""Looks for deadlocks once for all open admin pages."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from distlock.conf import configuration
from distlock.inspection import wait_graph
from distlock.inspection.tree import snapshot

if TYPE_CHECKING:
    from distlock.inspection.snapshot import Snapshot

#: The least time that the result of a look is shown, in seconds, and as a multiple of its duration.
KNOWN_SECONDS: Final = 1.5
KNOWN_TIMES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Circles:
    """The result of a look at the wait-for graph.

    :ivar whole: False if not all keys could be read
    """

    cycles: list[wait_graph.Cycle]
    links: list[wait_graph.Link]
    whole: bool


_known: dict[tuple[int, str, str], tuple[float, Circles]] = {}


def circles(using: str, budget: float, seen: Snapshot | None = None) -> Circles:
    """Return the links and the cycles of the wait-for graph.

    :param using: the alias in ``DISTLOCK``
    :param budget: seconds for the look
    :param seen: all locks of the namespace with all participants, if the caller has them
    :raises LockUnavailable: ZooKeeper did not answer in time, or refused
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
    links = wait_graph.links(seen.locks)
    now = time.monotonic()
    known = Circles(cycles=found, links=links, whole=not seen.cut)
    _known[place] = now + max(KNOWN_SECONDS, KNOWN_TIMES * (now - started)), known
    return known
