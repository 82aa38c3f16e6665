"""Publishes delayed tasks again, counts their delays, and knows the limits of brokers.

A delayed task is published again with the same id, and Celery's own count of retries stays the
same. The message's header ``distlock`` carries the number of delays, the first try, and what the
task waits for in a queue.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

from celery.backends.base import DisabledBackend
from celery.exceptions import Retry
from celery.utils.log import get_task_logger

from distlock.exceptions import LockBusy, LockUnavailable
from distlock.logs.loggers import safe

from .tickets import Ticket, Turn

try:
    from celery.utils.quorum_queues import detect_quorum_queues
except ImportError:  # Celery 5.4 delays in the worker
    detect_quorum_queues = None

#: Its lines carry the name and the id of the task.
logger = safe(get_task_logger("distlock.celery"))

#: The message header with the `Record`.
HEADER = "distlock"
#: RabbitMQ drops a message that passes the same delay queue twice, by its own record of the way.
#: Celery 5.6 and later filter these headers, 5.4 and 5.5 do not.
_WAY: Final = ("x-death", "x-first-death-", "x-last-death-")


class Record(NamedTuple):
    """The delays of a task so far: for a busy lock, and while the lock server was away.

    `since` is the time of the first try, in seconds since the epoch.
    """

    busy: int
    away: int
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
        if isinstance(error, LockBusy):
            return self._replace(busy=self.busy + 1)
        return self._replace(away=self.away + 1)

    @property
    def put_off(self) -> int:
        return self.busy + self.away

    @property
    def waited(self) -> float:
        """The seconds since the first try. The clocks of two hosts may differ."""
        return max(time.time() - self.since, 0.0)


class PutOff(Retry):  # type: ignore[misc]  # Celery has no types
    """Ends a run that is to be repeated. The outermost lock of the task publishes the message."""

    ticket: Ticket | None = None

    def publish(self) -> None:
        try:
            self.sig.apply_async()
        except BaseException:
            if self.ticket is not None:
                self.ticket.leave()
            raise


def put_off(
    task: Any,
    error: LockBusy | LockUnavailable,
    pause: float,
    record: Record,
    turn: Turn | None,
) -> PutOff:
    """Return the exception that ends this run of a task, with the message of the next one."""
    request = task.request
    headers = {k: v for k, v in (request.headers or {}).items() if not k.startswith(_WAY)}
    signature = task.signature_from_request(
        request,
        retries=request.retries,
        countdown=pause,
        headers={**headers, HEADER: {**record._asdict(), "turn": turn}},
        ignore_result=ignores_result(task, request),
        # Arguments that the publisher hides stay hidden.
        argsrepr=request.get("argsrepr"),
        kwargsrepr=request.get("kwargsrepr"),
    )
    return PutOff(exc=error, when=pause, sig=signature)


def pause_limits(app: Any) -> tuple[float, float]:
    """Return the shortest and the longest pause that the broker of `app` allows, in seconds."""
    connection = app.producer_pool.connections.connection
    driver = connection.transport.driver_type
    whole_seconds = detect_quorum_queues is not None and detect_quorum_queues(app, driver)[0]
    visible = connection.transport_options.get("visibility_timeout")
    # In the other half, the message waits for a free process.
    longest = float("inf") if visible is None else float(visible) / 2
    return (1.0 if whole_seconds else 0.0), longest


def ignores_result(task: Any, request: Any) -> bool:
    """Return whether the call, or by default the task, stores no result."""
    return bool(vars(request).get("ignore_result", task.ignore_result))


def state_of(task: Any, task_id: str) -> str:
    """Return the state of a task, empty if no result backend tells."""
    if isinstance(task.backend, DisabledBackend):
        return ""
    try:
        return str(task.AsyncResult(task_id).state)
    except Exception:  # any backend's own; the callers do without
        logger.warning("The result backend could not be asked.", exc_info=True)
        return ""
