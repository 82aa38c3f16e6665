"""Reads the tree: the participants of one queue, or the holders and waiters of all locks.

`snapshot` and `look` are the only source for the admin, the commands and the metrics. They read in
batches, within a budget, and write nothing but the node that reveals the time (`server_time`).
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from itertools import chain
from typing import TYPE_CHECKING, Any

from distlock.engine.errors import NoNode
from distlock.keys.templates import znode_name
from distlock.keys.znodes import Participant, in_line
from distlock.session.bulk_reads import BATCH, FORBIDDEN, GONE, UNREAD, Reads
from distlock.session.registry import session_for
from distlock.session.server_time import server_clock, time_at

from .key_batch import locks_of
from .state import LEADER, LEASES, Snapshot, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from distlock.keys.znodes import NodeName
    from distlock.session.session import Session

    from .state import Lock


def participants(
    session: Session,
    path: str,
    *,
    key: str,
    timeout: float,
    order: Callable[[Iterable[str]], list[NodeName]] = in_line,
    at_once: int = 0,
) -> Iterator[Participant]:
    """Yield the participants in the queue under `path`, the holder first; none without a queue.

    It lists their names, and reads the nodes as they are wanted. Nodes that vanish in between are
    missing.

    :param timeout: seconds for all of it
    :param order: selects and sorts the names
    :param at_once: the number of nodes to read in one go, 0 for all
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    deadline = time.monotonic() + timeout

    def answer(future: Future[Any]) -> Any:
        try:
            return session.answer(future, max(deadline - time.monotonic(), 0), key=key)
        except NoNode:
            return None

    names = answer(session.ask(session.children, path)) or ()
    nodes = [f"{path}/{node.name}" for node in order(names)]
    while nodes:
        batch, nodes = (nodes[:at_once], nodes[at_once:]) if at_once else (nodes, [])
        reads = [session.ask(session.read, node) for node in batch]
        for node, read in zip(batch, reads, strict=True):
            found = participant(node, answer(read))
            if found is not None:
                yield found


def participant(path: str, read: tuple[bytes, Any] | None) -> Participant | None:
    """Return the participant of the node at `path`, given (data, stat), or None."""
    if read is None:
        return None
    data, stat = read
    return Participant.from_node(path, data, token=stat.czxid, session_id=stat.ephemeralOwner)


# --- all locks -----------------------------------------------------------------------------------


def snapshot(
    using: str = "default",
    *,
    select: Callable[[str], bool] | None = None,
    depth: int | None = 1,
    budget: float = 3.0,
) -> Snapshot:
    """Return the locks of a namespace that have holders or waiters, in order of their names.

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
    entries = sorted(_entries(reads, select), key=_place)
    return _look_at(reads, entries, depth)


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
    if key not in entries and _may_be_a_name(key):
        entries.append(key)
    return _look_at(reads, entries, depth)


def _may_be_a_name(key: str) -> bool:
    """Return whether a lock may have this name: a lease, a key too long for the tree, a peer's."""
    name = key.removeprefix(f"{LEASES}/")
    return (
        key.isprintable()
        and name not in {"", ".", ".."}
        and not name.startswith("@")
        and "/" not in name
    )


def _entries(reads: Reads, select: Callable[[str], bool] | None) -> list[str]:
    """Return the names of all possible locks."""
    session = reads.session
    reads.connect()
    names, leases = reads.children([session.root, f"{session.root}/{LEASES}"])
    if names is UNREAD:
        raise session.unavailable(session.root)
    if names is FORBIDDEN:
        raise reads.refused()
    found = [] if names is GONE else [name for name in names if not name.startswith("@")]
    if isinstance(leases, list):
        found += [f"{LEASES}/{name}" for name in leases]
    return [entry for entry in found if select is None or select(key_of(entry)[0])]


def _place(entry: str) -> tuple[bool, str]:
    """Sort leases after the rest."""
    return entry.startswith(LEASES), entry


def _look_at(reads: Reads, entries: Sequence[str], depth: int | None) -> Snapshot:
    session = reads.session
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
    return Snapshot(
        using=session.conf.alias,
        namespace=session.conf.namespace,
        locks=tuple(locks),
        keys=len(entries),
        cut=done < len(entries),
        taken_at=time_at(clock.now()),
        exact=clock.exact,
    )
