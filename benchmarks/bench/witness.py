"""Who sees it when two hold one lock: a file that all contenders have mapped into memory.

Each key has four numbers of 64 bits. A holder finds no holder there, writes its own number, and
finds it still there in the end; and it adds one to a counter as a careless program would, reading
it first and writing it last, so that an overlap loses an update. `Worker.java` does the same.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path

#: The numbers of one key: the holder, the counter, when it was left, and by whom.
HOLDER, COUNTER, LEFT_AT, LEFT_BY = range(4)
NUMBERS = 4


def create(path: Path, keys: int) -> None:
    """Make the file for so many keys."""
    path.write_bytes(bytes(8 * NUMBERS * keys))


def counted(path: Path) -> int:
    """Return how often any of the locks was held, as far as no update was lost."""
    return sum(memoryview(path.read_bytes()).cast("q")[COUNTER::NUMBERS])


class Witness:
    """One contender's view of the file.

    :param number: its own, above 0 and different from all others'
    :ivar overlaps: how often somebody else held what it held
    :ivar idle: nanoseconds that the lock was nobody's at each hand-off from another to it
    """

    def __init__(self, path: Path, number: int) -> None:
        with path.open("r+b") as file:
            self._cells = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self._number = number
        self._counter = 0
        self.overlaps = 0
        self.idle: list[int] = []

    def enter(self, key: int) -> None:
        """Say that it holds the lock of this index."""
        now = time.monotonic_ns()
        cells, first = self._cells, key * NUMBERS
        if cells[first + HOLDER]:
            self.overlaps += 1
        cells[first + HOLDER] = self._number
        self._counter = cells[first + COUNTER]
        if cells[first + LEFT_BY] not in {0, self._number}:
            self.idle.append(now - cells[first + LEFT_AT])

    def leave(self, key: int) -> None:
        """Say that it is about to release it."""
        cells, first = self._cells, key * NUMBERS
        if cells[first + HOLDER] != self._number:
            self.overlaps += 1
        cells[first + COUNTER] = self._counter + 1
        cells[first + LEFT_BY] = self._number
        cells[first + HOLDER] = 0
        cells[first + LEFT_AT] = time.monotonic_ns()
