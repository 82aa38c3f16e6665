"""Keeps the semaphore permits that this process holds.

A permit has no owner, so any thread may release what another one has acquired. Only the permits of
a ``with`` block are kept apart, for its owner: a block releases its own.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeAlias

from distlock import process

if TYPE_CHECKING:
    from distlock.owner.hold import Held
    from distlock.owner.owner import Owner

#: Names a semaphore's permits: the alias, the znode name, and the owner of the blocks or None.
HeldPermits: TypeAlias = "tuple[str, str, Owner | None]"

_held: dict[HeldPermits, list[Held]] = {}
# Reentrant, since a signal's handler may release what the code that it interrupts is releasing.
_lock = threading.RLock()


def keep(permits: HeldPermits, held: Held) -> None:
    """Add a permit."""
    with _lock:
        _held.setdefault(permits, []).append(held)


def claim(permits: HeldPermits, number: int, claimed: list[Held]) -> bool:
    """Move the latest `number` permits into `claimed`; return False if there are too few."""
    process.notice_fork()
    with _lock:
        there = _held.get(permits, [])
        if len(there) < number:
            return False
        for held in there[-number:]:
            claimed.append(held)  # first, so that an interrupt loses no permit
            forget(permits, held)
        return True


def forget(permits: HeldPermits, held: Held) -> bool:
    """Remove a permit; return False if it was gone already."""
    with _lock:
        there = _held.get(permits, [])
        if held not in there:
            return False
        there.remove(held)
        if not there:
            del _held[permits]
        return True


def on(permits: HeldPermits) -> list[Held]:
    """Return the permits, the latest last."""
    with _lock:
        return list(_held.get(permits, ()))


def of_blocks(owner: Owner) -> list[tuple[HeldPermits, Held]]:
    """Return the permits of an owner's blocks."""
    with _lock:
        return [(key, held) for key, there in _held.items() if key[2] is owner for held in there]


def count(using: str, name: str) -> int:
    """Return how many permits of a semaphore this process holds, in and out of blocks."""
    process.notice_fork()
    with _lock:
        return sum(len(there) for permits, there in _held.items() if permits[:2] == (using, name))


def clear() -> None:
    """Forget all permits, when their sessions are over."""
    with _lock:
        _held.clear()


@process.in_child
def _forget_the_parent() -> None:
    """In a forked child: the permits stay with the parent."""
    global _lock  # noqa: PLW0603 - a thread of the parent may have held it at the fork
    _lock = threading.RLock()
    _held.clear()
