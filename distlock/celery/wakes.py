"""Wakes the next task when a lock is taken or released under ``on_busy="queue"``.

The process that takes the lock publishes the id of the first ticket's task to all workers, so that
a short hold ends with a waiter in a slot, and publishes it again at the release. The worker that
keeps the message starts the task now. A lost wake only costs time: the message keeps its own. A
wake may overtake its message, so workers remember unknown tasks for a while. Workers without an
event loop, brokers without fanout, and quorum queues have no wakes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

from celery import bootsteps, signals
from celery.utils.collections import LimitedSet
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer
from kombu.utils.compat import detect_environment

from .put_off import logger, pause_limits
from .tickets import Ticket

EXCHANGE: Final[Any] = Exchange("distlock.wakes", type="fanout", durable=False, delivery_mode=1)


def wake_first(app: Any, ticket: Ticket) -> None:
    """Let the first task in the queue begin now, or after its pause. This never raises."""
    try:
        first = ticket.first()
        if first is not None:
            wake(app, first)
    except Exception:  # noqa: BLE001 - any broker's own; the task that has just ended is done
        logger.warning("The first task in line could not be woken.", exc_info=True)


def wake(app: Any, task_id: str) -> None:
    """Let a delayed task begin now, wherever its message is."""
    with app.amqp.producer_pool.acquire(block=True) as producer:
        if producer.connection.supports_exchange_type("fanout"):
            producer.publish(
                task_id, exchange=EXCHANGE, declare=[EXCHANGE], serializer="json", retry=False
            )


def pause_per_ticket(app: Any) -> float:
    """Return the longest pause for each ticket ahead, in units of ``RETRY_AFTER``."""
    connection = app.producer_pool.connections.connection
    arrive = (
        detect_environment() == "default"
        and connection.transport.implements.asynchronous
        and connection.supports_exchange_type("fanout")
        and not pause_limits(app)[0]
    )
    return 2.0 if arrive else 0.5


class Wakes(bootsteps.ConsumerStep):  # type: ignore[misc]  # Celery has no types
    """Receives the wakes in a worker's main process."""

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._early = LimitedSet(maxlen=10_000, expires=60)  # seconds
        self._timer = consumer.timer
        signals.task_received.connect(self._received)

    def include_if(self, consumer: Any) -> bool:
        """Return whether there is an event loop: it runs consumer, timer and this in one thread."""
        return consumer.hub is not None and consumer.conninfo.supports_exchange_type("fanout")

    def get_consumers(self, channel: Any) -> Iterable[Any]:
        name = f"distlock.wakes.{uuid4()}"
        queue = Queue(name, EXCHANGE, exclusive=True, auto_delete=True, durable=False)
        return [Consumer(channel, [queue], no_ack=True, accept=["json"], callbacks=[self._begin])]

    def _received(self, request: Any, **_: Any) -> None:
        if request.eta and request.id in self._early:
            self._timer.call_after(0, self._begin, (request.id,))  # when it is in the timer

    def _begin(self, body: object, _: Any = None) -> None:
        """Let a task begin whose message waits here, or remember its id."""
        task_id = str(body)
        for _, _, entry in self._timer.queue:
            request = entry.args[0] if entry.args else None
            if getattr(request, "id", None) == task_id and not entry.canceled:
                entry.cancel()
                self._early.discard(task_id)
                entry()
                return
        self._early.add(task_id)
