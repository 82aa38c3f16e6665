"""Keeps the semaphore permits that this process holds, and releases what code has left held.

A permit has no owner, so any thread may release what another one has acquired. Only the permits of
a ``with`` block are kept apart, for its owner: a block releases its own.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from logging import Logger
from typing import TypeAlias

from distlock import process
from distlock.owner.hold import Held
from distlock.owner.owner import Owner

#: Names a semaphore's permits: the alias, the znode name, and the owner of the blocks or None.
HeldPermits: TypeAlias = "tuple[str, str, Owner | None]"

#: The permits, the latest last.
_held: dict[Held, HeldPermits] = {}
# Reentrant, since a signal's handler may release what the code that it interrupts is releasing.
_claiming = threading.RLock()


def keep(permits: HeldPermits, held: Held) -> None:
    _held[held] = permits


def claim(permits: HeldPermits, number: int, claimed: list[Held]) -> bool:
    """Move `number` permits into `claimed`; return False if there are too few.

    Those that are lost come first, or another thread's work would go on without its permit; then
    the latest.
    """
    process.notice_fork()
    with _claiming:
        there = sorted(on(permits), key=lambda held: held.hold.lost)
        if len(there) < number:
            return False
        for held in there[-number:]:
            claimed.append(held)  # first, so that an interrupt loses no permit
            forget(held)
        return True


def forget(held: Held) -> bool:
    """Remove a permit; return False if it was gone already."""
    return _held.pop(held, None) is not None


def on(permits: HeldPermits) -> list[Held]:
    """Return the permits, the latest last."""
    return [held for held, where in list(_held.items()) if where == permits]


def of_blocks(owner: Owner) -> list[Held]:
    return [held for held, where in list(_held.items()) if where[2] is owner]


def count(using: str, name: str) -> int:
    """Return how many permits of a semaphore this process holds, in and out of blocks."""
    process.notice_fork()
    return sum(where[:2] == (using, name) for where in list(_held.values()))


def clear() -> None:
    """Forget all permits, when their sessions are over."""
    _held.clear()


def held_by(owner: Owner) -> Collection[object]:
    """Return what an owner holds, for `release_leftovers`."""
    return {*owner.held, *of_blocks(owner)}


def release_leftovers(
    owner: Owner, name: object, *, keep: Collection[object], logger: Logger
) -> None:
    """Release the locks that a request or a task has left held: its successor would re-enter them.

    :param keep: what `held_by` returned before: leave that alone
    """
    keys = owner.release_all(keep=keep)
    for held in of_blocks(owner):
        if held not in keep and forget(held):
            held.grant.leave()
            held.announce_end()
            keys.append(held.hold.key)
    for key in keys:
        logger.error(
            "%s left the lock %r held, and it is released now. Use `with zk_lock(…)`, which "
            "always releases.",
            name,
            key,
        )


@process.in_child
def _forget_the_parent() -> None:
    """In a forked child: the permits stay with the parent."""
    global _claiming  # noqa: PLW0603 - a thread of the parent may have held it at the fork
    _claiming = threading.RLock()
    _held.clear()
