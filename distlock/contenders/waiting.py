"""Waits for a contender to be granted: how long, and how that ends."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from distlock.engine.errors import NotYet
from distlock.keys.znodes import owner_in
from distlock.session import patience
from distlock.session.patience import Patience
from distlock.session.programs import Driver, each
from distlock.signals import announce, lock_waited_long, lock_waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.dispatch import Signal

    from distlock.contenders.batch import BatchMember
    from distlock.contenders.contender import QueuedContender
    from distlock.contenders.semaphore import SemaphoreContender
    from distlock.engine.calls import Steps, Wake
    from distlock.queue.events import Node
    from distlock.session.programs import Request
    from distlock.session.session import Session
    from distlock.signals import Subject

    #: A wait in a line; and any.
    InLine: TypeAlias = QueuedContender | BatchMember
    Waiter: TypeAlias = InLine | SemaphoreContender

_T = TypeVar("_T")
_W = TypeVar("_W", bound="Waiter")


class Attempt(Patience, Generic[_W]):
    """One caller's wait: how long it may last, and how it ended.

    :param contender_for: makes the contender, given ``settled``, which it calls when it is settled,
        and ``max_waiters``
    :param detector: looks for a deadlock meanwhile, as `locks.deadlocks` does
    :param max_waiters: the number of waiters ahead at which it does not wait, None for any
    :param sender: sends the signals of a long wait, a busy lock or a failure, if it is given
    """

    contender: _W
    _wake: Wake
    #: Whether there is a contender to leave.
    _in_queue = False
    #: Whether it had a place in the queue before it joined again.
    _was_in_line = False
    #: Whether it was announced that it waits.
    _waits = False

    def __init__(
        self,
        session: Session,
        key: str,
        timeout: float | None,
        contender_for: Callable[..., _W],
        *,
        detector: Any = None,
        max_waiters: int | None = None,
        sender: type | None = None,
        about: Subject | None = None,
    ) -> None:
        super().__init__(session, key, timeout)
        self._max_waiters = 0 if self.try_only else math.inf if max_waiters is None else max_waiters
        self._contender_for = contender_for
        self._detector = detector
        self._sender, self._about = sender, about
        long = session.conf.waited_long
        #: When its wait is told next.
        self._tell_at = math.inf if long is None else self.started + long
        #: When it joined the queue, at first or again.
        self._joined_at = self.started

    def begin(self, wake: Wake) -> _W:
        """Return the contender to join. It calls `wake` when it is settled."""
        self._wake = wake
        contender = self._contender_for(settled=wake, max_waiters=self._max_waiters)
        self.contender = contender
        contender.deadline = self.deadline
        self._in_queue = True
        return contender

    def patience(self) -> float | None:
        """Return the seconds to wait before asking again, or None when the wait is over."""
        contender, session = self.contender, self.session
        cause = contender.error.__cause__ if contender.error else None
        until = cause.until if isinstance(cause, NotYet) else math.inf
        again = until < self.deadline and not self.try_only
        # A server that is away does not end the time for which it has refused.
        if again and (rest := until - time.monotonic()) > 0 and session.disconnected_at is None:
            return min(rest, patience.LOOK_SECONDS)
        in_vain = contender.granted and contender.lost and time.monotonic() < self.deadline
        if in_vain or again:
            # Nobody had the grant, as when an operator removes the queue in this instant; or the
            # server has refused for a while that is over.
            contender.leave()
            self._joined_at = time.monotonic()
            self._was_in_line = self._was_in_line or in_vain
            contender = self.begin(self._wake)
            contender.join()
        if contender.granted or contender.error is not None or contender.crowd is not None:
            return None
        in_line = contender.was_in_line or self._was_in_line
        asked_at = max(contender.asked_at, self._joined_at) if in_line else self._joined_at
        now = time.monotonic()
        rest = self.rest(now, asked_at, in_line=in_line, behind=contender.ahead is not None)
        if rest <= 0:
            return None
        if now >= self._tell_at:
            waited = self.waited
            self._tell_at = self.started + 2 * waited
            if not contender.lasts:
                who = owner_in(contender.data)
                self._announce(lock_waited_long, waited=waited, who=who)
        if contender.ahead and not self._waits:
            self._waits = True
            self._announce(lock_waits, wait=self, over=False)
        if self._detector is not None:
            rest = min(rest, self._detector.turn(contender, self._wake))
        return rest

    def _announce(self, signal: Signal, **facts: Any) -> None:
        if self._sender is not None and self._about is not None:
            announce(signal, self._sender, self._about, **facts)

    def _end(self) -> None:
        if self._detector is not None:
            self._detector.end()
        if self._waits:
            self._announce(lock_waits, wait=self, over=True)

    def steps(self, then: Callable[[Attempt[_W]], _T], wake: Wake) -> Steps[_T]:
        """Join, wait for the grant or the end of the time, and return the result of `then`."""
        self.begin(wake).join()
        while (seconds := self.patience()) is not None:
            yield seconds
        return then(self)

    def ask(self, request: Request) -> Steps[Any]:
        """Ask the server something more, and return the answer, None without one soon."""
        rest = self.deadline + patience.ANSWER_SECONDS - time.monotonic()
        driver = Driver(self.session, self.key, rest)
        (answer,) = yield from driver.steps(each([request], Exception), self._wake)
        return answer

    def give_up(self) -> None:
        """Leave no node behind, however the wait ended. Any number of calls are fine."""
        if self._in_queue:
            self.contender.leave()
        self._end()

    def outcome(self) -> Node | None:
        """End the wait, and return the granted node; or leave, and return None for a busy lock.

        :raises LockUnavailable: the server did not answer
        :raises IncompatiblePeer: another recipe is on the path
        :raises DeadlockDetected: the wait would never have ended
        """
        if self._detector is not None or self._waits:  # most acquires have not waited
            self._end()
        contender, session = self.contender, self.session
        ahead, granted = contender.ahead, contender.granted  # in this order: a grant sets both
        if granted and not (contender.lost or contender.left):
            return contender.node
        contender.leave()
        self._in_queue = False
        self.crowd = None if self.try_only else contender.crowd
        error = contender.error
        ahead = ahead or contender.ahead  # as a semaphore's `leave` finds
        behind = ahead or contender.crowd is not None
        busy = behind and not granted and session.disconnected_at is None
        if error is None and not busy:  # nobody is known to be ahead: the server does not answer
            error = session.unavailable(self.key)
        if self._sender is not None and self._about is not None:
            self.tell(self._sender, self._about, error)
        if error is not None:
            raise error
        return None
