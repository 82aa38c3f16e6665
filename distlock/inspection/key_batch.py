"""Reads a batch of keys: first the names of their nodes, and then the nodes' data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from distlock.keys import znodes
from distlock.keys.znodes import NodeName, Participant, in_line, text_in
from distlock.lease.nodes import LeaseHolder, Term
from distlock.queue.semaphore.limits import limit_in
from distlock.session.bulk_reads import FORBIDDEN, GONE, UNREAD
from distlock.session.server_time import time_at

from .state import LEASES, Contender, Lock, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from distlock.session.bulk_reads import Outcome, Reads
    from distlock.session.server_time import Clock

    from .state import Mode

#: The number of foreign nodes whose names are shown.
FOREIGN_SHOWN: Final = 5
#: The nodes of a semaphore: the parents of its permits and of its queue, by their wire names.
PARTS: Final = ("leases", "locks")
MODES: Final[dict[str, Mode]] = {
    znodes.LOCK: "lock",
    znodes.READ: "read",
    znodes.WRITE: "write",
    znodes.LEASE: "lease",
}


@dataclass(frozen=True, slots=True)
class ListedLock:
    """A lock of which only names are known yet: those of its holders, waiters and parents."""

    lock: Lock
    holders: Sequence[NodeName] = ()
    waiters: Sequence[NodeName] = ()
    held_at: str = ""
    waited_at: str = ""

    def paths(self, depth: int | None) -> Iterator[str]:
        """Yield the paths to read."""
        if self.lock.kind == "semaphore":  # its limit
            yield self.held_at
        yield from (f"{self.held_at}/{node.name}" for node in self.holders[:depth])
        yield from (f"{self.waited_at}/{node.name}" for node in self.waiters[:depth])


def locks_of(
    reads: Reads, entries: Sequence[str], depth: int | None, clock: Clock
) -> Iterator[list[Lock]]:
    """Yield the locks of each entry, up to the first for which the time was too short.

    :param entries: names of locks, as in `Lock.name`
    :param depth: the number of holders, and of waiters, of each lock to read, None for all
    """
    listed_locks = list(_listed_locks(reads, entries))
    wanted = [
        path for of_entry in listed_locks for listed in of_entry for path in listed.paths(depth)
    ]
    nodes = dict(zip(wanted, reads.nodes(wanted), strict=True))
    now = clock.now()
    for of_entry in listed_locks:
        if any(nodes[path] is UNREAD for listed in of_entry for path in listed.paths(depth)):
            return
        locks = (_filled_in(listed, nodes, depth, now) for listed in of_entry)
        yield [lock for lock in locks if _is_of_interest(lock)]


def _is_of_interest(lock: Lock) -> bool:
    return bool(lock.holding or lock.waiting or lock.foreign or not lock.readable)


# --- by name -------------------------------------------------------------------------------------


def _listed_locks(reads: Reads, entries: Sequence[str]) -> Iterator[list[ListedLock]]:
    """List the names under each entry, until the time is up."""
    root = reads.session.root
    paths = [f"{root}/{entry}" for entry in entries if not entry.startswith(LEASES)]
    listed = dict(zip(paths, reads.children(paths), strict=True))
    parts = [
        f"{path}/{part}"
        for path, names in listed.items()
        if isinstance(names, list)
        for part in PARTS
        if part in names
    ]
    listed.update(zip(parts, reads.children(parts), strict=True))
    for entry in entries:
        key, kind = key_of(entry)
        lock = Lock(key=key, name=entry, path=f"{root}/{entry}", kind=kind)
        if kind == "lease":
            parent, _, name = lock.path.rpartition("/")
            yield [ListedLock(lock, [NodeName(name, znodes.LEASE, 0)], held_at=parent)]
            continue
        names = listed[lock.path]
        permits, queue = (listed.get(f"{lock.path}/{part}", GONE) for part in PARTS)
        if UNREAD in (names, permits, queue):
            return
        if names is FORBIDDEN:
            yield [ListedLock(replace(lock, kind="unknown", readable=False))]
        elif names is GONE:
            yield []
        else:
            semaphore = any(part in names for part in PARTS)
            yield [
                *([_semaphore(lock, permits, queue)] if semaphore else ()),
                listed_lock(lock, names),
            ]


def listed_lock(lock: Lock, names: Sequence[str]) -> ListedLock:
    """Split a queue of mutexes, readers and writers into holders and waiters, as `queue` does."""
    line = in_line(names)
    known = {*PARTS, *(node.name for node in line)}
    foreign = sorted(name for name in names if name not in known)
    lock = replace(lock, foreign=tuple(text_in(name) for name in foreign[:FOREIGN_SHOWN]))
    if not line:
        return ListedLock(replace(lock, kind="unknown"))
    if any(node.kind != znodes.LOCK for node in line):
        lock = replace(lock, kind="read/write")
    holders: list[NodeName] = []
    waiters: list[NodeName] = []
    writer: int | None = None
    for node in line:
        reads = node.kind == znodes.READ
        # A writer that reads, too, has two nodes with the same number.
        before = writer if reads else line[0].sequence
        (holders if before in (None, node.sequence) else waiters).append(node)
        if not reads and writer is None:
            writer = node.sequence
    return ListedLock(lock, holders, waiters, held_at=lock.path, waited_at=lock.path)


def _semaphore(lock: Lock, permits: Outcome, queue: Outcome) -> ListedLock:
    return ListedLock(
        replace(lock, kind="semaphore", readable=FORBIDDEN not in (permits, queue)),
        znodes.leases(permits) if isinstance(permits, list) else (),
        in_line(queue) if isinstance(queue, list) else (),
        held_at=f"{lock.path}/leases",
        waited_at=f"{lock.path}/locks",
    )


# --- by the data of the nodes --------------------------------------------------------------------


def _filled_in(
    listed: ListedLock, nodes: Mapping[str, Outcome], depth: int | None, now: float
) -> Lock:
    listed = _without_the_gone(listed, nodes)
    holders, limit = listed.holders, None
    if listed.lock.kind == "semaphore":
        written = nodes[listed.held_at]
        limit = limit_in(written[0])[0] if isinstance(written, tuple) else None
        holders = _granted(holders, listed.waiters, limit)
    held, missed = _contenders(listed.held_at, holders[:depth], nodes, now, holds=True)
    waiting, gone = _contenders(listed.waited_at, listed.waiters[:depth], nodes, now, holds=False)
    return replace(
        listed.lock,
        holding=len(holders) - missed,
        waiting=len(listed.waiters) - gone,
        holders=held,
        waiters=waiting,
        limit=limit,
    )


def _without_the_gone(listed: ListedLock, nodes: Mapping[str, Outcome]) -> ListedLock:
    """Decide again whose turn it is if a holder has left since the queue was listed."""
    line = [*listed.holders, *listed.waiters]
    there = [node for node in line if nodes.get(f"{listed.held_at}/{node.name}") is not GONE]
    first_is_there = line[: len(listed.holders)] == there[: len(listed.holders)]
    if listed.held_at != listed.waited_at or first_is_there or not there:
        return listed
    again = listed_lock(listed.lock, [node.name for node in there])
    return replace(again, lock=replace(again.lock, foreign=listed.lock.foreign))


def _granted(
    permits: Sequence[NodeName], queue: Sequence[NodeName], limit: int | None
) -> Sequence[NodeName]:
    """Return the permits of a semaphore that are held.

    The head of the queue makes its permits, with one name but for the number, and waits until there
    are not too many. Until then nobody holds these newest ones.
    """
    if not queue or not permits or (limit is not None and len(permits) <= limit):
        return permits
    made = permits[-1].name.removesuffix(f"{permits[-1].sequence:010d}")
    return [permit for permit in permits if not permit.name.startswith(made)]


def _contenders(
    parent: str,
    nodes: Sequence[NodeName],
    outcomes: Mapping[str, Outcome],
    now: float,
    *,
    holds: bool,
) -> tuple[tuple[Contender, ...], int]:
    """Return the contenders whose nodes still exist, and the number of those that do not."""
    found = [
        _contender(path, node, outcomes[path], now, holds)
        for node in nodes
        if (path := f"{parent}/{node.name}") in outcomes
    ]
    there = tuple(one for one in found if one is not None)
    return there, len(found) - len(there)


def _contender(
    path: str, node: NodeName, outcome: Outcome, now: float, holds: bool
) -> Contender | None:
    if outcome is GONE:
        return None
    mode = MODES[node.kind]
    if outcome is FORBIDDEN:
        unknown = Participant(path=path, sequence=node.sequence, token=0, session_id=0, peer=True)
        return Contender(participant=unknown, mode=mode, holds=holds, readable=False)
    data, stat = outcome
    if path.rpartition("/")[0].endswith(f"/{LEASES}"):
        return _lease(path, data, stat, now)
    who = Participant.from_node(path, data, token=stat.czxid, session_id=stat.ephemeralOwner)
    if who is None:  # never: its name was parsed
        return None
    return _since(now, stat.ctime / 1000, participant=who, mode=mode, holds=holds)


def _lease(path: str, data: bytes, stat: Any, now: float) -> Contender | None:
    """Return the owner of a persistent lease, or None if its time is up."""
    term = Term.read(data, stat)
    if term is not None and term.ended(int(now * 1000)):
        return None
    who = LeaseHolder.of(path, term)
    if term is None:
        who = replace(who, token=stat.mzxid)
    since = who.since.timestamp() if who.since else stat.mtime / 1000
    return _since(now, since, participant=who, mode="lease", holds=True)


def _since(now: float, since: float, **facts: Any) -> Contender:
    return Contender(since=time_at(since), seconds=max(now - since, 0.0), **facts)
