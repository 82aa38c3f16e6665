"""Publishes delayed tasks again, and counts their delays.

A delayed task is published again with the same id, and Celery's own count of retries stays the
same: ``self.retry()`` would use it up, and the third of three contenders with ``max_retries=2``
would fail. The message's header ``distlock`` carries the number of delays, and the first try.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from celery.exceptions import Retry

from distlock.exceptions import LockBusy, LockUnavailable

from .brokers import without_way

if TYPE_CHECKING:
    from .tickets import Ticket

#: The message header with the `Record`.
HEADER = "distlock"


class Record(NamedTuple):
    """The delays of a task so far."""

    #: The delays for a busy lock.
    busy: int
    #: The delays while the lock server was away.
    away: int
    #: The time of the first try, in seconds since the epoch.
    since: float

    @classmethod
    def of(cls, request: Any) -> Record:
        """Read the record of a message; foreign data counts as no delay."""
        try:
            said = request.headers[HEADER]
            return cls(int(said["busy"]), int(said["away"]), float(said["since"]))
        except (TypeError, ValueError, KeyError):
            return cls(0, 0, time.time())

    def after(self, error: LockBusy | LockUnavailable) -> Record:
        """Return the record of the next run."""
        if isinstance(error, LockBusy):
            return self._replace(busy=self.busy + 1)
        return self._replace(away=self.away + 1)

    @property
    def put_off(self) -> int:
        """The number of delays, for any reason."""
        return self.busy + self.away

    @property
    def waited(self) -> float:
        """The seconds since the first try. The clocks of two hosts may differ."""
        return max(time.time() - self.since, 0.0)


class PutOff(Exception):
    """Ends a run that is to be repeated.

    The outermost lock of the task publishes the message, after all releases: an earlier message
    would find its own task in the way.
    """

    def __init__(
        self,
        error: LockBusy | LockUnavailable,
        pause: float,
        record: Record,
        ticket: Ticket | None,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.pause = pause
        self.record = record
        self.ticket = ticket

    def publish(self, task: Any) -> Retry:
        """Publish the task again, and return the exception that tells Celery."""
        request = task.request
        signature = task.signature_from_request(
            request,
            retries=request.retries,
            countdown=self.pause,
            headers={**without_way(request.headers), HEADER: self.record._asdict()},
            ignore_result=ignores_result(task, request),
            # Arguments that the publisher hides stay hidden.
            argsrepr=request.get("argsrepr"),
            kwargsrepr=request.get("kwargsrepr"),
        )
        try:
            signature.apply_async()
        except BaseException:
            if self.ticket is not None:
                self.ticket.leave()
            raise
        return Retry(exc=self.error, when=self.pause, sig=signature)


def ignores_result(task: Any, request: Any) -> bool:
    """Return whether the call, or by default the task, stores no result."""
    return bool(vars(request).get("ignore_result", task.ignore_result))
