"""Builds the wait-for graph over all keys, and finds its cycles.

An owner waits for one lock at a time, and meanwhile releases nothing. So it is stuck when all that
it waits for are stuck: the holders of a mutex, the readers or the writer of a read/write lock. For
a semaphore, one holder that goes on is enough. Peers have no known owner, and count as going on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .state import Contender, Lock, Snapshot
from .tree import snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A waiter, and a holder for which it waits."""

    lock: Lock
    waiter: Contender
    holder: Contender


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """A deadlock: each owner waits for the next one, and the last for the first.

    :ivar links: one for each owner in it
    """

    links: tuple[Link, ...]

    def __str__(self) -> str:
        steps = "".join(
            f"{link.waiter} waits for {str(link.lock)!r}, held by " for link in self.links
        )
        return steps + str(self.links[-1].holder)

    @property
    def youngest(self) -> Contender:
        """The newest waiter, which has to give way, so that all make the same choice."""
        return max((link.waiter for link in self.links), key=lambda one: one.participant.token)

    @property
    def certain(self) -> bool:
        """Whether only these owners can release: any thread may release a semaphore's permits."""
        return all(link.lock.kind != "semaphore" for link in self.links)

    @property
    def nodes(self) -> frozenset[tuple[str, str]]:
        """Its nodes, equal for the same cycle at another look."""
        return frozenset(
            (link.waiter.participant.path, link.holder.participant.path) for link in self.links
        )


def deadlocks(using: str = "default", *, budget: float = 3.0) -> list[Cycle]:
    """Return the cycles of a namespace.

    It reads the nodes one after the other, and the first may have changed before the last. So only
    a cycle that is there at a second look counts: a waiter has released nothing between the two.

    :param using: the alias in ``DISTLOCK``
    :param budget: seconds for each look; nodes that are not read in time do not count
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    return confirmed(snapshot(using, depth=None, budget=budget), budget)


def confirmed(seen: Snapshot, budget: float) -> list[Cycle]:
    """Return the cycles among fully read locks that are there at a second look, too."""
    found = {cycle.nodes for cycle in cycles(seen.locks)}
    if not found:
        return []
    again = cycles(snapshot(seen.using, depth=None, budget=budget).locks)
    return [cycle for cycle in again if cycle.nodes in found]


def cycles(locks: Iterable[Lock]) -> list[Cycle]:
    """Return the deadlocks among fully read locks, one of those that share an owner."""
    locks = list(locks)
    stuck = _stuck(locks)
    by_waiter: dict[str, list[Link]] = {}
    for lock in locks:
        held = [one for one in lock.holders if one.owner in stuck]
        for waiter in lock.waiters:
            if waiter.owner in stuck:
                by_waiter.setdefault(waiter.owner, []).extend(
                    Link(lock=lock, waiter=waiter, holder=holder) for holder in held
                )
    found: list[Cycle] = []
    covered: set[str] = set()
    for owner in sorted(by_waiter):
        cycle = None if owner in covered else _shortest(owner, by_waiter)
        around = {link.waiter.owner for link in cycle.links} if cycle else set()
        if cycle and not around & covered:
            covered |= around
            found.append(cycle)
    return found


def _stuck(locks: Sequence[Lock]) -> set[str]:
    """Return the owners that wait only for each other."""
    waits = {
        one.owner: lock
        for lock in locks
        for one in lock.waiters
        if one.owner and not _served(lock, one)
    }
    # Waiters for these locks may proceed; the rest follows from that.
    stuck = set(waits)
    behind: dict[str, list[str]] = {}
    for owner, lock in waits.items():
        for holder in lock.holders:
            behind.setdefault(holder.owner, []).append(owner)
    pending = deque(stuck)
    while pending:
        owner = pending.popleft()
        if owner in stuck and not _blocked(waits[owner], stuck):
            stuck.discard(owner)
            pending.extend(behind.get(owner, ()))
    return stuck


def _served(lock: Lock, waiter: Contender) -> bool:  # by a permit, and only has to leave the queue
    return any(
        holder.owner == waiter.owner and holder.participant.token > waiter.participant.token
        for holder in lock.holders
    )


def _blocked(lock: Lock, stuck: set[str]) -> bool:
    held = [holder.owner in stuck for holder in lock.holders]
    if len(held) < lock.holding:  # the others are unknown
        held.append(False)
    return all(held) and bool(held) if lock.kind == "semaphore" else any(held)


def _shortest(start: str, by_waiter: Mapping[str, Sequence[Link]]) -> Cycle | None:
    """Return the shortest path from an owner through its waits back to itself."""
    came_by: dict[str, Link] = {}
    pending = deque([start])
    while pending:
        for link in by_waiter.get(pending.popleft(), ()):
            owner = link.holder.owner
            if owner not in came_by:
                came_by[owner] = link
                pending.append(owner)
        if start in came_by:
            way = [came_by[start]]
            while way[0].waiter.owner != start:
                way.insert(0, came_by[way[0].waiter.owner])
            return Cycle(links=tuple(way))
    return None
