"""Waits for a contender to be granted, blocking or awaiting.

`wait` waits at a latch, `wait_async` at a future. They share everything else.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.locks.deadlocks import DeadlockDetector

    from .contender import Node, Place

_T = TypeVar("_T")

#: The least time that a call waits for the server's first answer, in seconds.
ANSWER_SECONDS = 0.4
#: The seconds after which a waiter checks again that there is a connection.
LOOK_SECONDS = 1.0


class Attempt:
    """One caller's wait: how long it may last, and how it ended.

    :param place_for: makes the place
    :param timeout: seconds, 0 to try once, None for ever
    :param settled: called by the place when it is settled
    :param detector: looks for a deadlock meanwhile
    """

    def __init__(
        self,
        place_for: Callable[..., Place],
        timeout: float | None,
        settled: Callable[[], None],
        detector: DeadlockDetector | None = None,
    ) -> None:
        self.place = place_for(settled=settled)
        self._place_for = place_for
        self.started = time.monotonic()
        self._settled = settled
        self._detector = detector
        self._try_only = timeout == 0
        self._deadline = math.inf if timeout is None else self.started + timeout
        self._answer_by = max(self._deadline, self.started + ANSWER_SECONDS)

    @property
    def waited(self) -> float:
        """Seconds since the call."""
        return time.monotonic() - self.started

    @property
    def grace(self) -> float:
        """The seconds left after the deadline, for questions to the server."""
        return max(self._deadline + ANSWER_SECONDS - time.monotonic(), 0.0)

    def patience(self) -> float | None:
        """Return the seconds to wait before asking again, or None when the wait is over."""
        place = self.place
        if place.granted or place.error is not None or (place.ahead and self._try_only):
            return None
        now = time.monotonic()
        # To the deadline first: the state of the queue then decides whether to go on.
        ends_at = self._ends_at()
        if now < self._deadline:
            ends_at = min(ends_at, self._deadline)
        remaining = ends_at - now
        if remaining <= 0:
            return None
        if self._detector is not None:
            remaining = min(remaining, self._detector.turn(place, self._settled))
        return min(remaining, LOOK_SECONDS)

    @property
    def in_vain(self) -> bool:
        """Whether the grant was lost before the caller had it, with time left to join anew.

        This happens when an operator removes the queue, for example.
        """
        place = self.place
        return place.granted and place.lost and time.monotonic() < self._deadline

    def join_anew(self, settled: Callable[[], None]) -> None:
        """Leave the queue, and join it again."""
        self.place.leave()
        self._settled = settled
        place = self.place = self._place_for(settled=settled)
        place.was_in_line = True  # the server has answered before, so it gets its full time again
        place.asked_at = time.monotonic()
        place.join()

    def end(self) -> None:
        """Stop the detector. Any number of calls are fine."""
        if self._detector is not None:
            self._detector.end()

    def give_up(self) -> None:
        """Leave no node behind, however the wait ended. Any number of calls are fine."""
        self.place.leave()
        self.end()

    def _ends_at(self) -> float:
        place, session = self.place, self.place.session
        down_since = session.disconnected_at
        if place.ahead is not None and down_since is None:
            return self._deadline
        if session.over:
            return self.started
        bearable = session.conf.connect_timeout
        if not place.was_in_line:
            return min(self._answer_by, self.started + bearable)
        # A place survives a cut, but not longer than the session does.
        silent_since = down_since or place.asked_at
        return min(self._answer_by, silent_since + session.timeout + bearable)

    def outcome(self) -> Node | None:
        """Return the granted node; or give up, and return None for a busy lock.

        :raises LockUnavailable: the server did not answer
        :raises IncompatiblePeer: another recipe is on the path
        :raises DeadlockDetected: the wait would never have ended
        """
        place = self.place
        if place.granted and not place.lost:
            return place.node
        place.leave()
        if place.error is not None:
            raise place.error
        if place.granted or place.ahead is None or place.session.disconnected_at is not None:
            raise place.session.unavailable(place.key)
        return None


def wait(
    place_for: Callable[..., Place],
    timeout: float | None,
    then: Callable[[Attempt], _T],
    detector: DeadlockDetector | None = None,
) -> _T:
    """Join a queue, block until the grant or the time-out, and return the result of `then`.

    An exception on the way, even in `then`, leaves no node behind.

    :param place_for: makes the place, given ``settled``, a function to call when it is settled
    :param timeout: seconds, 0 to try once, None for ever
    :param detector: looks for a deadlock meanwhile
    """
    latch = Latch()
    attempt = Attempt(place_for, timeout, latch.open, detector)
    try:
        attempt.place.join()
        while True:
            while (patience := attempt.patience()) is not None:
                latch.wait(patience)
            if not attempt.in_vain:
                break
            latch = Latch()
            attempt.join_anew(latch.open)
        attempt.end()
        return then(attempt)
    except BaseException:
        attempt.give_up()
        raise


async def wait_async(
    place_for: Callable[..., Place],
    timeout: float | None,
    then: Callable[[Attempt], _T],
    detector: DeadlockDetector | None = None,
) -> _T:
    """Do as `wait` does, without a thread."""
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[None] = loop.create_future()

    def settle(settled: asyncio.Future[None]) -> None:
        try:
            loop.call_soon_threadsafe(_set_result, settled)
        except RuntimeError:  # the loop is closed, and its task will never take what is granted
            attempt.give_up()

    attempt = Attempt(place_for, timeout, partial(settle, settled), detector)
    try:
        attempt.place.join()
        while True:
            while (patience := attempt.patience()) is not None:
                # wait_for would swallow a cancellation in the instant of the grant (bpo-37658).
                await asyncio.wait([settled], timeout=patience)
            if not attempt.in_vain:
                break
            settled = loop.create_future()
            attempt.join_anew(partial(settle, settled))
        attempt.end()
        return then(attempt)
    except BaseException:
        attempt.give_up()
        raise


def _set_result(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Latch:
    """An event to wait for, which an exception from a signal handler cannot break.

    `threading.Event` raises a RuntimeError of its own when one lands inside its condition.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        try:  # noqa: SIM105 - suppress() makes three calls, at each acquire
            self._lock.release()
        except RuntimeError:  # open already
            pass

    def wait(self, seconds: float) -> None:
        if self._lock.acquire(timeout=seconds):
            self.open()
