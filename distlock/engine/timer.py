"""Calls methods when they are due, in one thread for the whole process."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakMethod

from distlock.process import in_child

from .calls import start_thread, this_thread
from .guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

#: The time, a number that settles ties, and the method.
_Step: TypeAlias = "tuple[float, int, WeakMethod[Any]]"
#: The number of steps kept before a sweep drops those whose objects are gone.
MANY: Final = 1000
#: The longest that a thread can wait, in seconds.
_LONGEST: Final = threading.TIMEOUT_MAX


def call_later(seconds: float, method: Callable[[], None]) -> None:
    """Call a bound method on the timer's thread after so many seconds, if its object still lives.

    A call cannot be cancelled: the method checks for itself whether it still matters.

    :raises LockUnavailable: the timer's thread cannot be started
    """
    _running().orders.put((time.monotonic() + seconds, next(_order), WeakMethod(method)))


class _Timer(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="distlock-timer", daemon=True)
        #: New steps. A signal handler may put one, too.
        self.orders: SimpleQueue[_Step] = SimpleQueue()
        self.due: list[_Step] = []

    def run(self) -> None:
        this_thread.ours = True
        due = self.due
        many = MANY
        while True:
            with suppress(Empty):
                heappush(due, self.orders.get(timeout=_until(due[0][0]) if due else None))
                while True:  # all orders, or a late thread would take an early one for the earliest
                    heappush(due, self.orders.get_nowait())
            while due and _until(due[0][0]) == 0:
                _call(heappop(due)[2])
            if len(due) > many:
                due[:] = [step for step in due if step[2]() is not None]
                heapify(due)
                many = 2 * len(due) + MANY


def _until(when: float) -> float:
    return min(max(when - time.monotonic(), 0.0), _LONGEST)


def _call(reference: WeakMethod[Any]) -> None:
    method = reference()
    if method is not None:
        guarded(method)


_order = count()
_timer: _Timer | None = None


def _running() -> _Timer:
    global _timer  # noqa: PLW0603 - one per process
    if _timer is None:  # without a lock: a second thread, started by a race, does no harm
        timer = _Timer()
        start_thread(timer)
        _timer = timer  # not earlier: the start may fail
    return _timer


@in_child
def _forget_the_parent() -> None:
    global _timer  # noqa: PLW0603 - its thread did not survive the fork
    _timer = None
