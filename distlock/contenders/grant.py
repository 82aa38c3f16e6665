"""Knows whether a grant still holds, and reports how it changes."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from distlock import signals
from distlock.engine.deadline import now
from distlock.engine.timer import call_later
from distlock.keys import znodes
from distlock.session import patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.dispatch import Signal

    from distlock.queue.events import Node, Reason
    from distlock.session.session import Session

#: The seconds for which an attempt stays after the end of its time, and of that for an answer,
#: where its caller does not come back: the event loop is stopped, or blocked.
OVERDUE_SECONDS = 5.0


class Grant:
    """A node that gives its owner something, from the grant until the owner leaves.

    Its attributes are set on the connection thread, but `left`, which the caller sets.
    """

    #: The recipe's part of the node's name.
    kind = znodes.LOCK
    #: Whether others may hold at the same time.
    shared = False
    #: Whether it is meant to last, so that its hold and its wait are never long.
    lasts = False
    #: The data that describes its owner.
    data = b""
    #: Why the grant was lost.
    lost_reason: Reason = "session"
    #: When the hold is given up at the latest, by `engine.deadline.now`.
    ends_at = math.inf
    #: The one of this process that has the lock after us, if all goes well.
    follower: Any = None
    #: The end of its caller's time (`time.monotonic`).
    deadline = math.inf
    _settled: Callable[[], None]
    _reported_risk = False

    def __init__(self, session: Session) -> None:
        self.session = session
        self.node: Node | None = None
        self.granted = False
        #: Whether the caller has given it up.
        self.left = False
        #: The epoch of the session deadline at the grant.
        self.epoch = 0
        self._lost = False
        self._listeners: list[Callable[[Signal | None], None]] = []

    @property
    def standing(self) -> bool:
        """Whether the node belongs to the session of now (CURATOR-604)."""
        return self.node is not None and self.node.session_id == self.session.id

    @property
    def lost(self) -> bool:
        """Whether the grant is, or was at any moment until it was left, not certain any more."""
        if self._lost or self.left:
            return self._lost
        node, session = self.node, self.session
        if (
            node is None
            or node.session_id != session.id
            or not session.deadline.unbroken(self.epoch)
        ):
            self._lose("session")  # and never back: another thread may know more
        return self._lost

    @property
    def at_risk(self) -> bool:
        """Whether the connection is gone, and the grant is not lost yet."""
        return self.session.deadline.at_risk and self.granted and not (self.left or self.lost)

    def leave(self) -> None:
        """Give it up; the node is deleted for certain. From any thread; may be repeated."""
        raise NotImplementedError

    def lose(self) -> None:
        """Take note that the node is gone."""
        self._lose("broken")

    def _lose(self, reason: Reason) -> None:
        if not (self._lost or self.left):
            self.lost_reason = reason
            self._lost = True

    def give_up_after(self, max_hold: float) -> None:
        """Give the hold up after so many seconds, if it is still held then."""
        self.ends_at = now() + max_hold
        call_later(max_hold, self._give_up)

    def _give_up(self) -> None:
        """Lose the grant first, and then let the next one have it."""
        raise NotImplementedError

    def listen(self, listener: Callable[[Signal | None], None]) -> None:
        """Call `listener`, from some thread, with the signal for each change of the grant.

        A heartbeat without a change brings None.
        `lock_lost` comes once and last. Nothing comes after the owner has left, but a loss before.
        """
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[Signal | None], None]) -> None:
        """Call `listener` no more; without harm where it has gone already."""
        with suppress(ValueError):
            self._listeners.remove(listener)

    def report(self) -> None:
        """Report to the listeners what they do not know yet."""
        if not (self.granted and self._listeners):
            remind(self)
            return
        if self.left and not self._lost:
            self._listeners.clear()  # they refer to the hold, and that to us
        elif self.lost:
            with suppress(IndexError):  # another thread was faster
                while self._listeners:
                    self._listeners.pop()(signals.lock_lost)
        elif not self.left:
            news: Signal | None = None
            if self.at_risk is not self._reported_risk:
                self._reported_risk = not self._reported_risk
                news = signals.lock_at_risk if self._reported_risk else signals.lock_safe
            for listener in list(self._listeners):
                listener(news)


def remind(contender: Any) -> None:
    """Wake a caller that has not taken its grant, and give up one whose time is long over.

    The event loop of an awaited call may have been closed with the wake-up in its queue, or it is
    stopped, or blocked. Called with each heartbeat.
    """
    if contender.left:
        return
    if contender.granted:
        if not contender.lost:
            contender._settled()  # noqa: SLF001 - a grant's, or a semaphore's
    elif time.monotonic() > contender.deadline + patience.ANSWER_SECONDS + OVERDUE_SECONDS:
        contender.session.soon(partial(_give_up_overdue, contender))


def tell_late(contender: Any) -> None:
    """Wake a caller whose time is over if somebody is ahead; called each time that is seen."""
    if time.monotonic() >= contender.deadline and contender.ahead and not contender.left:
        contender._settled()  # noqa: SLF001 - as above


def _give_up_overdue(contender: Any) -> None:
    if not contender.granted:
        contender.leave()
