"""Tells how long a call waits: for others until its deadline, for silent servers not so long."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from distlock.exceptions import DistlockError, LockBusy
from distlock.signals import announce, lock_contended, lock_failed

if TYPE_CHECKING:
    from distlock.signals import Subject

    from .requests import SessionRequests

#: The least time that a call waits for the server's first answer, in seconds.
ANSWER_SECONDS = 0.4
#: A caller that waits looks again after so many seconds whether the session is over.
LOOK_SECONDS = 1.0


class Patience:
    """The time that one call has.

    :param key: the key, for errors
    :param timeout: seconds, 0 to try once, None for ever
    """

    #: How many waited when there were too many to wait behind.
    crowd: int | None = None

    def __init__(self, session: SessionRequests, key: str, timeout: float | None) -> None:
        self.session = session
        self.key = key
        self.started = time.monotonic()
        self.try_only = timeout == 0
        self.deadline = math.inf if timeout is None else self.started + timeout
        #: When it gives up if nobody knows whether the lock is busy.
        self.answer_by = max(self.deadline, self.started + ANSWER_SECONDS)

    @property
    def waited(self) -> float:
        """Seconds since the call."""
        return time.monotonic() - self.started

    def rest(self, now: float, asked_at: float, *, in_line: bool, behind: bool) -> float:
        """Return the seconds to wait before looking again; 0 or less when the wait is over.

        :param now: `time.monotonic` just before the others were looked at: what is seen after the
            deadline wakes the caller
        :param asked_at: when the servers were asked what they have not answered
        :param in_line: whether they have answered before: who is in line survives a cut, but not
            longer than the session does
        :param behind: whether somebody is ahead, as far as is known while there is a connection
        """
        session = self.session
        down_since = session.disconnected_at
        if behind and down_since is None:
            ends_at = self.deadline
        elif session.over:
            return 0.0
        else:
            # Since the loss: who comes later need not find out anew that nobody answers.
            bearable = session.conf.connect_timeout + (session.timeout if in_line else 0.0)
            ends_at = min(self.answer_by, (down_since or asked_at) + bearable)
            if now < self.deadline:  # to the deadline first: what is known then decides
                ends_at = min(ends_at, self.deadline)
        return min(ends_at - now, LOOK_SECONDS)

    def tell(self, sender: type, about: Subject, error: Exception | None) -> None:
        """Send the signal of a busy lock, or of a failure."""
        if error is None:
            announce(lock_contended, sender, about, waited=self.waited)
        elif isinstance(error, DistlockError):
            announce(lock_failed, sender, about, waited=self.waited, error=error)

    def busy(
        self,
        what: str,
        by: str = "",
        holder: Any = None,
        *,
        kind: type[LockBusy] = LockBusy,
        template: str = "",
    ) -> LockBusy:
        """Return the error for a caller that has waited in vain.

        :param by: what keeps the lock busy, as the end of a sentence
        """
        advice = "wait longer with timeout="
        if self.crowd is not None:
            by, advice = f"{by}; waiting already: {self.crowd}", "raise max_waiters="
        return kind(
            f"{what} is busy after {self.waited:.1f} s{by}. Try again later, or {advice}.",
            key=self.key,
            template=template,
            holder=holder,
            waited=self.waited,
            retry_after=self.session.conf.retry_after,
            using=self.session.conf.alias,
        )
