"""Waits for a contender to be granted: how long, and how that ends."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from distlock.engine.errors import NotYet
from distlock.exceptions import DistlockError
from distlock.session.programs import LOOK_SECONDS, Driver, each
from distlock.signals import announce, lock_contended, lock_failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.contenders.batch import BatchMember
    from distlock.contenders.contender import QueuedContender
    from distlock.contenders.semaphore import SemaphoreContender
    from distlock.engine.calls import Steps, Wake
    from distlock.queue.events import Node
    from distlock.session.programs import Request
    from distlock.signals import Subject

    #: A wait in a line; and any.
    InLine: TypeAlias = QueuedContender | BatchMember
    Waiter: TypeAlias = InLine | SemaphoreContender

_T = TypeVar("_T")
_W = TypeVar("_W", bound="Waiter")

#: The least time that a call waits for the server's first answer, in seconds.
ANSWER_SECONDS = 0.4
#: The seconds after the end of its time for which an attempt stays, where its caller does not come
#: back: the event loop is stopped, or blocked.
OVERDUE_SECONDS = 5.0


class Detector(Protocol):
    """Looks for a deadlock while somebody waits; see `locks.deadlocks`."""

    def turn(self, contender: Any, wake: Wake) -> float:
        """Do what is due, and return the seconds to the next turn."""

    def end(self) -> None:
        """Look no more."""


class Attempt(Generic[_W]):
    """One caller's wait: how long it may last, and how it ended.

    :param contender_for: makes the contender, given ``settled``, which it calls when it is settled
    :param timeout: seconds, 0 to try once, None for ever
    :param detector: looks for a deadlock meanwhile
    """

    contender: _W
    _wake: Wake
    #: Whether there is a contender to leave.
    _in_queue = False
    #: When it joined the queue again (`time.monotonic`), since the first grant was lost.
    _again_at = 0.0

    def __init__(
        self,
        contender_for: Callable[..., _W],
        timeout: float | None,
        detector: Detector | None = None,
    ) -> None:
        self._contender_for = contender_for
        self.started = time.monotonic()
        self._detector = detector
        self._try_only = timeout == 0
        self._deadline = math.inf if timeout is None else self.started + timeout
        self._answer_by = max(self._deadline, self.started + ANSWER_SECONDS)

    def begin(self, wake: Wake) -> _W:
        """Return the contender to join. It calls `wake` when it is settled."""
        self._wake = wake
        contender = self.contender = self._contender_for(settled=wake)
        contender.overdue_at = self._answer_by + OVERDUE_SECONDS
        self._in_queue = True
        return contender

    @property
    def waited(self) -> float:
        """Seconds since the call."""
        return time.monotonic() - self.started

    def patience(self) -> float | None:
        """Return the seconds to wait before asking again, or None when the wait is over."""
        contender = self.contender
        cause = contender.error.__cause__ if contender.error else None
        until = cause.until if isinstance(cause, NotYet) else math.inf
        again = until < self._deadline and not self._try_only
        if again and (rest := until - time.monotonic()) > 0:
            return rest
        in_vain = contender.granted and contender.lost and time.monotonic() < self._deadline
        if in_vain or again:
            # Nobody had the grant, as when an operator removes the queue in this instant; or the
            # server has refused for a while that is over.
            contender.leave()
            self._again_at = time.monotonic()
            contender = self.begin(self._wake)
            contender.join()
        if contender.granted or contender.error is not None or (contender.ahead and self._try_only):
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
            remaining = min(remaining, self._detector.turn(contender, self._wake))
        return min(remaining, LOOK_SECONDS)

    def steps(self, then: Callable[[Attempt[_W]], _T], wake: Wake) -> Steps[_T]:
        """Join, wait for the grant or the end of the time, and return the result of `then`."""
        self.begin(wake).join()
        while (seconds := self.patience()) is not None:
            yield seconds
        return then(self)

    def ask(self, request: Request) -> Steps[Any]:
        """Ask the server something more, and return the answer, None without one soon."""
        contender = self.contender
        left = self._deadline + ANSWER_SECONDS - time.monotonic()
        program = each([request], Exception)
        driver = Driver(contender.session, contender.key, left)
        (answer,) = yield from driver.steps(program, self._wake)
        return answer

    def give_up(self) -> None:
        """Leave no node behind, however the wait ended. Any number of calls are fine."""
        if self._in_queue:
            self.contender.leave()
        if self._detector is not None:
            self._detector.end()

    def _ends_at(self) -> float:
        contender, session = self.contender, self.contender.session
        down_since = session.disconnected_at
        if contender.ahead is not None and down_since is None:
            return self._deadline
        if session.over:
            return self.started
        bearable = session.conf.connect_timeout
        if not (contender.was_in_line or self._again_at):
            return min(self._answer_by, self.started + bearable)
        # A contender survives a cut, but not longer than the session does.
        silent_since = down_since or max(contender.asked_at, self._again_at)
        return min(self._answer_by, silent_since + session.timeout + bearable)

    def outcome(self) -> Node | None:
        """End the wait, and return the granted node; or leave, and return None for a busy lock.

        :raises LockUnavailable: the server did not answer
        :raises IncompatiblePeer: another recipe is on the path
        :raises DeadlockDetected: the wait would never have ended
        """
        if self._detector is not None:
            self._detector.end()
        contender = self.contender
        if contender.granted and not (contender.lost or contender.left):
            return contender.node
        contender.leave()
        self._in_queue = False
        if contender.error is not None:
            raise contender.error
        if (
            contender.granted
            or not contender.ahead  # nobody is known to be, and the server does not answer
            or contender.session.disconnected_at is not None
        ):
            raise contender.session.unavailable(contender.key)
        return None

    def announced(self, sender: type, about: Subject) -> Node | None:
        """Return the `outcome`, and send the signal of a busy lock or a failure."""
        try:
            node = self.outcome()
        except DistlockError as error:
            announce(lock_failed, sender, about, waited=self.waited, error=error)
            raise
        if node is None:
            announce(lock_contended, sender, about, waited=self.waited)
        return node
