"""A set for tests that repeat what has happened, step by step."""

from __future__ import annotations

from typing import Any


class InOrder(dict[Any, None]):
    """A set in the order of addition: alike in each run."""

    def add(self, one: Any) -> None:
        self[one] = None

    def discard(self, one: Any) -> None:
        self.pop(one, None)
