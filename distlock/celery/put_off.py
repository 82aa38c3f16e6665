"""Publishes delayed tasks again, counts their delays, and knows the limits of brokers.

A delayed task is published again with the same id, and Celery's own count of retries stays the
same. The message's header ``distlock`` carries the number of delays, the first try, and what the
task waits for in a queue, or its tickets when it is its turn.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from celery.backends.base import DisabledBackend
from celery.exceptions import Retry
from celery.utils.log import get_task_logger
from kombu.utils.compat import detect_environment

from distlock.exceptions import LockBusy, LockUnavailable
from distlock.logs.loggers import safe

from .tickets import Ticket, Turn, leave

try:
    from celery.utils.quorum_queues import detect_quorum_queues
except ImportError:  # Celery 5.4 delays in the worker
    detect_quorum_queues = None

#: Its lines carry the name and the id of the task.
logger = safe(get_task_logger("distlock.celery"))

#: The message header with the `Record`, and the `Turn` or the tickets.
HEADER = "distlock"
#: The message header with the key of the lease of a task that is queued once, and its owner.
ONCE: Final = "distlock_once"
#: The drivers of the brokers whose messages wait in a worker.
_PATIENT: Final = ("amqp", "redis")
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
    def of(cls, headers: Any) -> Record:
        """Read the record of a message; foreign data counts as no delay."""
        try:
            said = headers[HEADER]
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

    tickets: Sequence[Ticket] = ()

    def publish(self) -> None:
        try:
            self.sig.apply_async()
        except BaseException:
            leave(self.tickets)
            raise


def put_off(
    task: Any, error: LockBusy | LockUnavailable, pause: float, record: Record, turn: Turn | None
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


def pop_tickets(request: Any) -> list[str]:
    """Remove and return the tickets of a task whose turn it is.

    A retry copies the header, and would take over the place, and a first try of long ago.
    """
    header = (request.headers or {}).get(HEADER)
    if not isinstance(header, dict):
        return []
    header.pop("turn", None)
    if not (header.get("busy") or header.get("away")):
        del request.headers[HEADER]
    return cast("list[str]", header.pop("tickets", []))


def pause_limits(app: Any) -> tuple[float, float]:
    """Return the shortest and the longest pause that the broker of `app` allows, in seconds."""
    connection = app.producer_pool.connections.connection
    driver = connection.transport.driver_type
    whole_seconds = detect_quorum_queues is not None and detect_quorum_queues(app, driver)[0]
    visible = connection.transport_options.get("visibility_timeout")
    # In the other half, the message waits for a free process.
    longest = float("inf") if visible is None else float(visible) / 2
    return (1.0 if whole_seconds else 0.0), longest


def waits_in_worker(app: Any) -> bool:
    """Return whether the main processes of this app's workers keep messages for tasks to come.

    It takes an event loop (`wakes`), and a broker that leaves them a message for `kept_seconds`.
    Quorum queues wait at the broker, and with them a worker may not take more messages than its
    ``prefetch_count``.
    """
    driver = app.producer_pool.connections.connection.transport.driver_type
    loops = detect_environment() == "default" and driver in _PATIENT
    return loops and not (app.IS_WINDOWS or pause_limits(app)[0])


def kept_seconds(app: Any) -> float:
    """Return how long a worker's main process keeps a message at most.

    RabbitMQ before 4.3 closes the channel of a consumer that has not acknowledged a message for 30
    minutes (``consumer_timeout``), with ``acks_late`` its run included. Another worker may only get
    one of Redis when its time is over.
    """
    by_amqp = app.producer_pool.connections.connection.transport.driver_type == "amqp"
    return min(900.0 if by_amqp else 300.0, pause_limits(app)[1])


def longest_pause(app: Any, ahead: int, retry_after: float) -> float:
    """Return the longest pause of a task with so many tickets ahead, in seconds."""
    pause = retry_after * max(ahead, 1)
    if waits_in_worker(app):  # it is woken
        return min(max(2.0 * pause, 30.0), kept_seconds(app))
    return min(pause / 2, 30.0)


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
