"""Reads the tree: the participants of one queue, or the holders and waiters of all locks.

It reads in batches, first the names of nodes, and then the nodes' data, within a budget, and writes
nothing but the node that reveals the time (`server_time`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

from distlock.engine.errors import NoNode
from distlock.keys import znodes
from distlock.keys.templates import znode_name
from distlock.keys.znodes import NodeName, Participant, in_line, text_in
from distlock.lease.nodes import LeaseHolder, Term
from distlock.queue.semaphore import KEPT, limit_in
from distlock.session.bulk_reads import FORBIDDEN, GONE, UNREAD, Outcome, Reads
from distlock.session.programs import BATCH, Program, each
from distlock.session.registry import session_for
from distlock.session.server_time import Clock, clock_of, server_clock, time_at
from distlock.session.session import Session

from .state import LEADER, LEASES, Contender, Kind, Lock, Mode, Snapshot, key_of

#: The name of a lock: of a lease, of a key too long for the tree, of a peer's.
_NAME: Final = re.compile(rf"({LEASES}/)?(?!\.\.?$)[^@/][^/]*")
#: The nodes of a semaphore: the parents of its permits and of its queue, by their wire names.
PARTS: Final = ("leases", "locks")
MODES: Final[dict[str, Mode]] = {
    znodes.LOCK: "lock",
    znodes.READ: "read",
    znodes.WRITE: "write",
    znodes.LEASE: "lease",
}


def participants(
    session: Session,
    path: str,
    *,
    order: Callable[[Iterable[str]], list[NodeName]] = in_line,
    first: int | None = None,
) -> Program[list[Participant]]:
    """Return the participants in the queue under `path`, the holder first; none without a queue.

    Nodes that vanish between the list and the read are missing.

    :param order: selects and sorts the names
    :param first: how many are wanted, None for all
    """
    (names,) = yield from each([partial(session.children, path)], NoNode)
    if names and znodes.has_cool_down(names):
        clock = yield from clock_of(session)
        names = znodes.without_ended(names, clock.now())
    nodes = [f"{path}/{node.name}" for node in order(names or ())]
    first = len(nodes) if first is None else first
    found: list[Participant] = []
    while nodes and len(found) < first:
        batch, nodes = nodes[:first], nodes[first:]
        reads = yield from each([partial(session.read, node) for node in batch], NoNode)
        found += [one for one in map(participant, batch, reads) if one is not None]
    return found[:first]


def participant(path: str, read: tuple[bytes, Any] | None) -> Participant | None:
    """Return the participant of the node at `path`, given (data, stat), or None."""
    if read is None:
        return None
    data, stat = read
    return Participant.from_node(path, data, token=stat.czxid, session_id=stat.ephemeralOwner)


def snapshot(
    using: str = "default",
    *,
    select: Callable[[str], bool] | None = None,
    depth: int | None = 1,
    budget: float = 3.0,
) -> Snapshot:
    """Return the locks that have holders, waiters or a limit that was set, in order of their names.

    ::

        for lock in snapshot().locks:
            print(lock.key, lock.holders, lock.waiting)

    :param using: the alias in ``DISTLOCK``
    :param select: returns whether to read a key; by default all are read
    :param depth: the number of a lock's holders, and of its waiters, to read, None for all; the
        counts include all
    :param budget: seconds for all of it; locks not read by then are missing, and `cut` is set
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    reads = Reads(session_for(using), budget)
    return _look_at(reads, *_entries(reads, select), depth)


def look(
    key: str, using: str = "default", *, depth: int | None = 1000, budget: float = 3.0
) -> Snapshot:
    """Return the locks of one key: it may name a lock, a semaphore, a lease and a leader.

    :param key: the key, or the `name` of a lock
    :param using: the alias in ``DISTLOCK``
    :param depth: the number of a lock's holders, and of its waiters, to read, None for all
    :param budget: seconds for all of it
    :raises LockKeyError: `key` is empty or no valid text
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    reads = Reads(session_for(using), budget)
    reads.connect()
    name = znode_name(key)
    entries = [name, f"{LEADER}{name}", f"{LEASES}/{name}"]
    as_listed = []
    if key not in entries and key.isprintable() and _NAME.fullmatch(key):
        as_listed = [key]
    lines = [
        znodes.tasks_line(one, limited=limited)
        for one in (name, *as_listed)
        for limited in (False, True)
    ]
    return _look_at(reads, entries + as_listed, lines, depth)


def _entries(reads: Reads, select: Callable[[str], bool] | None) -> tuple[list[str], list[str]]:
    """Return the names of all possible locks in their order, leases last; and of lines of tasks."""
    session = reads.session
    reads.connect()
    names, leases, lines = reads.children(
        f"{session.root}{below}" for below in ("", f"/{LEASES}", f"/{znodes.TICKETS}")
    )
    if names is UNREAD:
        raise session.unavailable(session.root)
    if names is FORBIDDEN:
        raise session.unavailable(session.root, FORBIDDEN())
    found = [] if names is GONE else sorted(name for name in names if not name.startswith("@"))
    if isinstance(leases, list):
        found += [f"{LEASES}/{name}" for name in sorted(leases)]
    lines = lines if isinstance(lines, list) else []
    if select is not None:
        found = [entry for entry in found if select(key_of(entry)[0])]
        lines = [line for line in lines if select(key_of(_lock_of(line))[0])]
    return found, lines


def _look_at(
    reads: Reads, entries: Sequence[str], lines: Sequence[str], depth: int | None
) -> Snapshot:
    """Look at locks by their names, and at lines of tasks by theirs."""
    session = reads.session
    tickets = reads.children(f"{session.root}/{znodes.TICKETS}/{line}" for line in lines)
    there = zip(lines, tickets, strict=True)
    tasks = {line: len(names) for line, names in there if isinstance(names, list) and names}
    clock = server_clock(session, min(reads.left, 1.0))
    locks: list[Lock] = []
    done = 0
    for start in range(0, len(entries), BATCH):
        found = list(locks_of(reads, entries[start : start + BATCH], depth, clock))
        locks += chain.from_iterable(found)
        done += len(found)
        if done < min(start + BATCH, len(entries)):
            break
    if entries and not done:
        raise session.unavailable(session.root)
    cut = done < len(entries)
    if tasks:
        locks = _with_tasks(session.root, locks, tasks, cut=cut)
    return Snapshot(
        using=session.conf.alias,
        namespace=session.conf.namespace,
        locks=tuple(locks),
        keys=len(entries),
        cut=cut,
        taken_at=time_at(clock.now()),
        exact=clock.exact,
    )


def _lock_of(line: str) -> str:
    """Return the name of the lock for which the tasks of a line wait."""
    return line.removesuffix(znodes.PERMITS)


def _with_tasks(root: str, locks: list[Lock], tasks: dict[str, int], *, cut: bool) -> list[Lock]:
    """Return the locks with the numbers of their tasks, and those that have nothing but tasks.

    :param tasks: by line
    :param cut: whether there may be locks that were not read
    """
    found = []
    for lock in locks:
        line = znodes.tasks_line(lock.name, limited=lock.kind == "semaphore")
        found.append(replace(lock, tasks=tasks.pop(line, 0)))
    for line, count in tasks.items():
        name = _lock_of(line)
        if not cut and _NAME.fullmatch(name):  # anybody may have made it
            kind: Kind = "mutex" if name == line else "semaphore"
            path = f"{root}/{name}"
            found.append(Lock(key=key_of(name)[0], name=name, path=path, kind=kind, tasks=count))
    return sorted(found, key=lambda lock: (lock.kind == "lease", lock.name))


@dataclass(frozen=True, slots=True)
class ListedLock:
    """A lock of which only names are known yet: those of its holders, waiters and parents."""

    lock: Lock
    holders: Sequence[NodeName] = ()
    waiters: Sequence[NodeName] = ()
    held_at: str = ""
    waited_at: str = ""
    kept_at: str = ""

    def paths(self, depth: int | None) -> Iterator[str]:
        if self.lock.kind == "semaphore":  # its limit
            yield self.held_at
            if self.kept_at:
                yield self.kept_at
        yield from (f"{self.held_at}/{node.name}" for node in self.holders[:depth])
        yield from (f"{self.waited_at}/{node.name}" for node in self.waiters[:depth])


def locks_of(
    reads: Reads, entries: Sequence[str], depth: int | None, clock: Clock
) -> Iterator[list[Lock]]:
    """Yield the locks of each entry, up to the first for which the time was too short."""
    listed_locks = list(_listed_locks(reads, entries, clock))
    wanted = [
        path for of_entry in listed_locks for listed in of_entry for path in listed.paths(depth)
    ]
    nodes = dict(zip(wanted, reads.nodes(wanted), strict=True))
    now = clock.now()
    for of_entry in listed_locks:
        if any(nodes[path] is UNREAD for listed in of_entry for path in listed.paths(depth)):
            return
        locks = (_filled_in(listed, nodes, depth, now) for listed in of_entry)
        yield [
            one
            for one in locks
            if one.holding or one.waiting or one.limit_is_set or one.foreign or not one.readable
        ]


def _listed_locks(reads: Reads, entries: Sequence[str], clock: Clock) -> Iterator[list[ListedLock]]:
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
            kept_at = f"{lock.path}/{KEPT}" if KEPT in names else ""
            semaphore = kept_at or any(part in names for part in PARTS)
            yield [
                *([_semaphore(lock, permits, queue, kept_at)] if semaphore else ()),
                listed_lock(lock, znodes.without_ended(names, clock.now())),
            ]


def listed_lock(lock: Lock, names: Sequence[str]) -> ListedLock:
    """Split a queue of mutexes, readers and writers into holders and waiters, as `queue` does."""
    line = in_line(names)
    known = {*PARTS, KEPT, *(node.name for node in line)}
    foreign = sorted(name for name in names if name not in known)
    if foreign:
        lock = replace(lock, foreign=tuple(text_in(name) for name in foreign[:5]))
    if not line:
        return ListedLock(replace(lock, kind="unknown"))
    if any(node.kind != znodes.LOCK for node in line):
        lock = replace(lock, kind="read/write")
    return ListedLock(lock, *_split(line), held_at=lock.path, waited_at=lock.path)


def _split(line: Sequence[NodeName]) -> tuple[list[NodeName], list[NodeName]]:
    """Return the holders and the waiters of a queue; a cool-down waits behind its holder."""
    if len(line) > 1 and line[0].sequence == line[1].sequence and _cools(line[0]):
        line = [line[1], line[0], *line[2:]]
    holders: list[NodeName] = []
    waiters: list[NodeName] = []
    writer: int | None = None
    for node in line:
        reads = node.kind == znodes.READ
        # A writer that reads, too, has two nodes with the same number.
        before = writer if reads else line[0].sequence
        behind = before not in (None, node.sequence) or (holders and _cools(node))
        (waiters if behind else holders).append(node)
        if not reads and writer is None:
            writer = node.sequence
    return holders, waiters


def _cools(node: NodeName) -> bool:
    return znodes.UNTIL in node.name


def _semaphore(lock: Lock, permits: Outcome, queue: Outcome, kept_at: str) -> ListedLock:
    return ListedLock(
        replace(lock, kind="semaphore", readable=FORBIDDEN not in (permits, queue)),
        znodes.leases(permits) if isinstance(permits, list) else (),
        in_line(queue) if isinstance(queue, list) else (),
        held_at=f"{lock.path}/leases",
        waited_at=f"{lock.path}/locks",
        kept_at=kept_at,
    )


def _filled_in(
    listed: ListedLock, nodes: Mapping[str, Outcome], depth: int | None, now: float
) -> Lock:
    lock, limit, limit_is_set = listed.lock, None, False

    def still_there(parent: str, names: Sequence[NodeName]) -> Sequence[NodeName]:
        return [one for one in names if nodes.get(f"{parent}/{one.name}") is not GONE]

    def contenders(parent: str, names: Sequence[NodeName], *, holds: bool) -> tuple[Contender, ...]:
        return tuple(
            _contender(path, one, nodes[path], now, holds)
            for one in names[:depth]
            if (path := f"{parent}/{one.name}") in nodes
        )

    holders = still_there(listed.held_at, listed.holders)
    waiters = still_there(listed.waited_at, listed.waiters)
    if lock.kind == "lease":
        holders = [one for one in holders if not _has_ended(nodes.get(lock.path), now)]
    elif lock.kind == "semaphore":
        written = nodes[listed.held_at]
        if written is GONE:  # and with it the limit of the code
            written = nodes.get(listed.kept_at)
        if isinstance(written, tuple):
            limit, limit_is_set = limit_in(written[0])
        holders = _granted(holders, waiters, limit)
    elif len(holders) < len(listed.holders) and (line := [*holders, *waiters]):
        holders, waiters = _split(line)  # a holder has left since the queue was listed
    return replace(
        lock,
        holding=len(holders),
        waiting=len(waiters),
        holders=contenders(listed.held_at, holders, holds=True),
        waiters=contenders(listed.waited_at, waiters, holds=False),
        limit=limit,
        limit_is_set=limit_is_set,
    )


def _granted(
    permits: Sequence[NodeName], queue: Sequence[NodeName], limit: int | None
) -> Sequence[NodeName]:
    """Return the permits of a semaphore but those that the head of its queue has just made."""
    if not queue or not permits or (limit is not None and len(permits) <= limit):
        return permits
    made = permits[-1].name[: znodes.STEM]
    return [permit for permit in permits if not permit.name.startswith(made)]


def _has_ended(lease: Outcome, now: float) -> bool:
    term = Term.read(*lease) if isinstance(lease, tuple) else None
    return term is not None and int(now * 1000) > term.ends_at  # both are rounded down


def _contender(path: str, node: NodeName, outcome: Outcome, now: float, holds: bool) -> Contender:
    mode = MODES[node.kind]
    who: Participant | None = None
    if outcome is not FORBIDDEN:
        data, stat = outcome
        since = stat.ctime / 1000
        if path.rpartition("/")[0].endswith(f"/{LEASES}"):
            term = Term.read(data, stat)
            who = LeaseHolder.of(path, term)
            if term is None:
                who = replace(who, token=stat.mzxid)
            since = who.since.timestamp() if who.since else stat.mtime / 1000
        else:
            who = participant(path, outcome)
    if who is None:
        who = Participant(path=path, sequence=node.sequence, token=0, session_id=0, peer=True)
        return Contender(participant=who, mode=mode, holds=holds, readable=False)
    seconds = max(now - since, 0.0)
    # A lease and a cool-down are held from the begin.
    waited = 0.0 if isinstance(who, LeaseHolder) or _cools(node) else who.waited
    return Contender(
        participant=who,
        mode=mode,
        holds=holds,
        since=time_at(since),
        seconds=seconds,
        held=max(seconds - waited, 0.0) if holds and waited is not None else None,
    )
