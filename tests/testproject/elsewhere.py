"""Somebody else who holds a lock, for tests of those who find it busy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from distlock import zk_lock
from distlock.owner.owner import label
from tests.kit.helpers import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def held_elsewhere(key: str, *, work: str = "") -> Iterator[Event]:
    """Another thread of this process holds `key`, labelled `work`, until the event is set."""
    held, free = Event(), Event()

    def hold() -> None:
        with label(work), zk_lock(key):
            held.set()
            free.wait(600)  # the block below ends it, however long that takes

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            eventually(lambda: held.is_set() or holding.done())
            if not held.is_set():
                holding.result()
            yield free
        finally:
            free.set()
            holding.result(30)


def in_line(key: str) -> int:
    """How many hold or await `key`."""
    return len(zk_lock(key).participants())
