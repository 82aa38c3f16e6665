"""Tools of the semaphore tests: permits and queue as others see them, and a count of who is in."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distlock.keys.znodes import in_line

from .helpers import eventually
from .tools import PATIENCE, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "key"


class Permits:
    """A semaphore in the tree, looked at with a client that has nothing to do with distlock."""

    def __init__(self, tree: Tree, key: str = KEY) -> None:
        self.tree = tree
        self.path = f"{tree.path(key)}/leases"
        self.queue = f"{tree.path(key)}/locks"

    def names(self) -> list[str]:
        """The nodes of the permits, the oldest first."""
        return sorted(self.tree.children(self.path), key=lambda name: name[-10:])

    def line(self) -> list[str]:
        """The nodes at the queue, first come first."""
        return [node.name for node in in_line(self.tree.children(self.queue))]

    def await_(self, permits: int, in_queue: int) -> None:
        """Wait until there are so many nodes."""
        eventually(
            lambda: (len(self.names()), len(self.line())) == (permits, in_queue),
            PATIENCE,
            f"{permits} permits and {in_queue} at the queue of {self.path}",
        )

    def await_head(self, limit: int, in_queue: int = 1) -> None:
        """Wait until the head of the queue wants a permit more than there are, and watches them."""
        self.await_(limit + 1, in_queue)
        eventually(lambda: self.tree.watches()[self.path], PATIENCE, "a watch on the permits")


class Inside:
    """Counts who is in, and notes how many there were at most."""

    def __init__(self) -> None:
        self.count = 0
        self.most = 0
        self.entries = 0
        self._lock = threading.Lock()

    @contextmanager
    def counted(self, number: int = 1) -> Iterator[None]:
        with self._lock:
            self.count += number
            self.entries += 1
            self.most = max(self.most, self.count)
        try:
            yield
        finally:
            with self._lock:
                self.count -= number
