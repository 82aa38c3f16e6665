"""The leases that this process has taken, and not given back.

They belong to nobody in particular, so any thread may give back what another one took. Only those
of a ``with`` block are kept apart, for its owner: a block gives back its own.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from distlock.owner.hold import Held
    from distlock.owner.owner import Owner

#: The alias, the znode name, and the owner of the blocks, or None.
Shelf: TypeAlias = "tuple[str, str, Owner | None]"

_shelves: dict[Shelf, list[Held]] = {}
# Reentrant, since a signal's handler may release what the code that it interrupts is releasing.
_lock = threading.RLock()


def keep(shelf: Shelf, held: Held) -> None:
    """Put one on the shelf."""
    with _lock:
        _shelves.setdefault(shelf, []).append(held)


def claim(shelf: Shelf, number: int, claimed: list[Held]) -> bool:
    """Move the latest `number` from the shelf into `claimed`; False if there are not as many."""
    with _lock:
        there = _shelves.get(shelf, [])
        if len(there) < number:
            return False
        for held in there[-number:]:
            claimed.append(held)  # in this order nothing is in neither of the two
            forget(shelf, held)
        return True


def forget(shelf: Shelf, held: Held) -> bool:
    """Take one from the shelf; False if it was not there any more."""
    with _lock:
        there = _shelves.get(shelf, [])
        if held not in there:
            return False
        there.remove(held)
        if not there:
            del _shelves[shelf]
        return True


def on(shelf: Shelf) -> list[Held]:
    """Return what is on the shelf, the latest last."""
    with _lock:
        return list(_shelves.get(shelf, ()))


def count(using: str, name: str) -> int:
    """Return how many there are of a semaphore, whosever they are."""
    with _lock:
        return sum(len(there) for shelf, there in _shelves.items() if shelf[:2] == (using, name))


def clear() -> None:
    """Forget all leases, where their sessions are over."""
    with _lock:
        _shelves.clear()


def _forget_the_parent() -> None:
    """In a forked child: the parent's leases are the parent's."""
    global _lock  # noqa: PLW0603 - a thread of the parent may have held it at the fork
    _lock = threading.RLock()
    _shelves.clear()


os.register_at_fork(after_in_child=_forget_the_parent)
