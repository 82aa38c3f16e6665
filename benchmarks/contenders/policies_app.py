"""One task for each policy: the app of `benchmarks.celery_policies` and of its worker.

The environment has the ``BROKER``, the ``BOARD`` (a Redis), the ``ZOOKEEPER`` and the kind of the
``QUEUES``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import django
from celery import Celery
from django.conf import settings
from redis import Redis

settings.configure(
    INSTALLED_APPS=["distlock"],
    DISTLOCK={"default": {"HOSTS": os.environ["ZOOKEEPER"]}},
    SECRET_KEY="benchmark",  # noqa: S106 - protects nothing
)
django.setup()

from distlock import zk_locked  # noqa: E402 - after the settings
from distlock.celery.tickets import Ticket  # noqa: E402

QUEUE = f"{os.environ['QUEUES']}-tasks"

app = Celery("benchmark", broker=os.environ["BROKER"], backend=os.environ["BOARD"])
app.conf.update(
    task_default_queue=QUEUE,
    task_default_exchange_type="topic",
    task_queues={
        QUEUE: {
            "exchange": QUEUE,
            "exchange_type": "topic",
            "routing_key": QUEUE,
            "queue_arguments": {"x-queue-type": os.environ["QUEUES"]},
        }
    },
    broker_transport_options={"confirm_publish": True} if "amqp" in os.environ["BROKER"] else {},
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
)
board = Redis.from_url(os.environ["BOARD"])

task: Callable[..., Callable[[Callable[..., Any]], Any]] = app.task


def work(own: Any, key: str, seconds: float) -> None:
    """Say which task has the lock, in order, and count when it is done."""
    board.rpush(f"served:{key}", own.request.id)
    time.sleep(seconds)
    board.incr("done")


@task(name="retry", bind=True)
@zk_locked("<key>", on_busy="retry")
def retry(self: Any, key: str, seconds: float) -> None:
    work(self, key, seconds)


@task(name="wait", bind=True)
@zk_locked("<key>", on_busy="wait")
def wait(self: Any, key: str, seconds: float) -> None:
    work(self, key, seconds)


@task(name="queue", bind=True)
@zk_locked("<key>", on_busy="queue")
def queue(self: Any, key: str, seconds: float) -> None:
    work(self, key, seconds)


def _tell_ticket(leave: Callable[[Any], None]) -> Callable[[Any], None]:
    """Note the number of each task's ticket on the board, to compare it with the order."""

    def leaving(ticket: Any) -> None:
        if ticket.drawn:
            own = ticket.path.rpartition("/")[2]
            board.hset("tickets", own[:-11], own[-10:])
        leave(ticket)

    return leaving


Ticket.leave = _tell_ticket(Ticket.leave)  # type: ignore[method-assign, assignment]
