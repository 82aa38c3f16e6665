"""Measures the message that ends a session: it names each of the session's ephemeral nodes.

No server can read one that is longer than ``jute.maxbuffer`` (1 MiB by default), and it takes the
whole ensemble down (ZOOKEEPER-4306).
"""

from __future__ import annotations

from typing import Final

from distlock.keys.limits import SEQUENCE_DIGITS

#: The bytes that precede each path in the message. The paths of locks are ASCII.
LENGTH: Final = 4


class NodeBytes:
    """The ephemeral nodes of a session. They change on the connection thread alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        #: How many bytes they take.
        self.total = 0
        self._sizes: dict[str, int] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._sizes

    def add(self, path: str) -> None:
        """Count a node that was created."""
        if path not in self._sizes:
            size = self._sizes[path] = len(path) + LENGTH
            self.total += size

    def discard(self, path: str) -> None:
        """Stop counting a node, if it was counted."""
        self.total -= self._sizes.pop(path, 0)

    def clear(self) -> None:
        """Forget the nodes of a session that is over."""
        self._sizes.clear()
        self.total = 0

    def full(self, path: str, under_way: int) -> bool:
        """Whether one more node might exceed the limit, with so many `under_way`."""
        return self.total + (under_way + 1) * (len(path) + LENGTH + SEQUENCE_DIGITS) > self.limit

    def paths(self) -> list[str]:
        """Return the paths of the nodes."""
        return list(self._sizes)
