"""A task under two limits: the app of `benchmarks.celery_limits` and of its workers.

The environment has the ``BROKER``, the ``BOARD`` (a Redis, the witness) and the ``LOCKS``, and in
``ALL`` how many tasks may run at a time.
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
    DISTLOCK={"default": {"HOSTS": os.environ["LOCKS"], "SESSION_TIMEOUT": 10}},
    SECRET_KEY="benchmark",  # noqa: S106 - protects nothing
)
django.setup()

from distlock import zk_limited  # noqa: E402 - after the settings

app = Celery("benchmark", broker=os.environ["BROKER"])
app.conf.update(
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_transport_options={"confirm_publish": True},
)
board = Redis.from_url(os.environ["BOARD"], decode_responses=True)

task: Callable[..., Callable[[Callable[..., Any]], Any]] = app.task


@task(name="report", bind=True)
@zk_limited(
    {"all": int(os.environ["ALL"]), "customer:<customer>": 3},
    on_busy="queue",
    busy_deadline=None,
)
def report(self: Any, *, customer: str, seconds: float) -> None:
    """Tell the witness, by the clock of this machine, who is inside."""
    run = f"{self.request.id}/{os.getpid()}"
    tell("enter", customer, run)
    time.sleep(seconds)
    tell("leave", customer, run)
    board.sadd("done", self.request.id)


def tell(what: str, customer: str, run: str) -> None:
    board.rpush("log", f"{time.monotonic_ns()} {what} {customer} {run}")
