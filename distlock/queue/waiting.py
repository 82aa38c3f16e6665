"""Waits for a contender to be granted: how long, and how that ends."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.contenders.batch import BatchMember
    from distlock.contenders.contender import QueuedContender
    from distlock.locks.deadlocks import DeadlockDetector

    from .calls import Steps, Wake
    from .events import Node

    Place: TypeAlias = QueuedContender | BatchMember

_T = TypeVar("_T")

#: The least time that a call waits for the server's first answer, in seconds.
ANSWER_SECONDS = 0.4
#: The seconds after which a waiter checks again that there is a connection.
LOOK_SECONDS = 1.0


class Attempt:
    """One caller's wait: how long it may last, and how it ended.

    :param place_for: makes the place, given ``settled``, a function to call when it is settled
    :param timeout: seconds, 0 to try once, None for ever
    :param detector: looks for a deadlock meanwhile
    """

    place: Place
    _wake: Wake
    #: Whether there is a place to leave.
    _in_queue = False

    def __init__(
        self,
        place_for: Callable[..., Place],
        timeout: float | None,
        detector: DeadlockDetector | None = None,
    ) -> None:
        self._place_for = place_for
        self.started = time.monotonic()
        self._detector = detector
        self._try_only = timeout == 0
        self._deadline = math.inf if timeout is None else self.started + timeout
        self._answer_by = max(self._deadline, self.started + ANSWER_SECONDS)

    def begin(self, wake: Wake) -> Place:
        """Return the place to join. It calls `wake` when it is settled."""
        self._wake = wake
        place = self.place = self._place_for(settled=wake)
        self._in_queue = True
        return place

    @property
    def waited(self) -> float:
        """Seconds since the call."""
        return time.monotonic() - self.started

    def patience(self) -> float | None:
        """Return the seconds to wait before asking again, or None when the wait is over."""
        place = self.place
        if place.granted and place.lost and time.monotonic() < self._deadline:
            # Nobody had the grant, as when an operator removes the queue in this instant.
            place = self._join_anew()
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
            remaining = min(remaining, self._detector.turn(place, self._wake))
        return min(remaining, LOOK_SECONDS)

    def steps(self, then: Callable[[Attempt], _T], wake: Wake) -> Steps[_T]:
        """Join, wait for the grant or the end of the time, and return the result of `then`."""
        self.begin(wake).join()
        while (seconds := self.patience()) is not None:
            yield seconds
        return then(self)

    def ask(self, method: Callable[..., None], *args: Any) -> Steps[Any]:
        """Ask the server something more, and return the answer, None without one in time."""
        answers: list[Any] = []

        def answered(value: Any, _: BaseException | None) -> None:
            answers.append(value)
            self._wake()

        self.place.session.when_connected(partial(method, *args, answered))
        while not answers and (seconds := self._grace) > 0:
            yield seconds
        return answers[0] if answers else None

    def give_up(self) -> None:
        """Leave no node behind, however the wait ended. Any number of calls are fine."""
        if self._in_queue:
            self.place.leave()
        if self._detector is not None:
            self._detector.end()

    @property
    def _grace(self) -> float:
        """The seconds left after the deadline, for questions to the server."""
        return self._deadline + ANSWER_SECONDS - time.monotonic()

    def _join_anew(self) -> Place:
        """Leave the queue, and join it again."""
        self.place.leave()
        place = self.begin(self._wake)
        place.was_in_line = True  # the server has answered before, so it gets its full time again
        place.asked_at = time.monotonic()
        place.join()
        return place

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
        """End the wait, and return the granted node; or leave, and return None for a busy lock.

        :raises LockUnavailable: the server did not answer
        :raises IncompatiblePeer: another recipe is on the path
        :raises DeadlockDetected: the wait would never have ended
        """
        if self._detector is not None:
            self._detector.end()
        place = self.place
        if place.granted and not place.lost:
            return place.node
        place.leave()
        self._in_queue = False
        if place.error is not None:
            raise place.error
        if place.granted or place.ahead is None or place.session.disconnected_at is not None:
            raise place.session.unavailable(place.key)
        return None
