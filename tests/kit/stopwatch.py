"""How long something took, without the time for which the machine kept it from running.

That a call ends in time is promised by the code, and not by a machine that is overloaded or stands
still for a second: there everything is late that waits for its time, a thread that does nothing but
wait, too. By how much that one is late is what a bound may not be charged with.

Whoever keeps the GIL holds it up as well: where that is the subject, count processor time instead.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

#: How often the thread asks to be woken, in seconds.
TICK = 0.02


class Stopwatch:
    """Runs while its block does."""

    def __init__(self) -> None:
        #: For how many of the seconds this process was held up.
        self.held_up = 0.0
        self._started = 0.0
        self._ended: float | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stopwatch", daemon=True)

    @property
    def elapsed(self) -> float:
        """How many seconds have gone by since the block began, or went by in it."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def taken(self) -> float:
        """How many seconds the block took, without those for which it was held up."""
        return self.elapsed - self.held_up

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = time.monotonic()
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        before, done = self._started, False
        while not done:
            done = self._done.wait(TICK)
            # What comes after the end of the block is not part of it.
            now = self._ended or time.monotonic()
            self.held_up += max(now - before - TICK, 0.0)
            before = now
