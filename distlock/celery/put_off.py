"""Tasks that are put off: how often, and the message that lets them come again.

Such a task is published anew with the same id, and Celery's own count of retries is not touched:
``self.retry()`` would spend it, and the third of three contenders with ``max_retries=2`` would
fail. How often and since when it was put off travels in the message's header ``distlock``.
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
    """How often a task was put off."""

    #: Because the lock was busy.
    busy: int
    #: Because ZooKeeper was away.
    away: int
    #: When it first asked, in seconds since the epoch.
    since: float

    @classmethod
    def of(cls, request: Any) -> Record:
        """Read the record of a message; what is not ours counts as none."""
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
        """How often, for whatever reason."""
        return self.busy + self.away

    @property
    def waited(self) -> float:
        """Seconds since it first asked; the clocks of two hosts may differ."""
        return max(time.time() - self.since, 0.0)


class PutOff(Exception):
    """Ends a run that is to be repeated.

    The outermost lock of the task publishes the message, when it holds nothing any more: a message
    that is visible before would find its own task in the way.
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
        """Send the task again, and return what tells Celery so."""
        request = task.request
        signature = task.signature_from_request(
            request,
            retries=request.retries,
            countdown=self.pause,
            headers={**without_way(request.headers), HEADER: self.record._asdict()},
            ignore_result=ignores_result(task, request),
            # Arguments that a publisher hides stay hidden.
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
    """Whether the call, or by default the task, stores no result."""
    return bool(vars(request).get("ignore_result", task.ignore_result))
