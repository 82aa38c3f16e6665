"""The same work under each lock: the app of `benchmarks.celery_locks` and of its worker.

The environment has the ``BROKER`` and the ``ZOOKEEPER``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import django
from celery import Celery
from celery_once import QueueOnce
from celery_singleton import Singleton
from django.conf import settings
from redis import Redis

#: After how many seconds a lock ends that nobody gives back, where one has to be guessed.
EXPIRY = 10

settings.configure(
    INSTALLED_APPS=["distlock"],
    DISTLOCK={"default": {"HOSTS": os.environ["ZOOKEEPER"]}},
    SECRET_KEY="benchmark",  # noqa: S106 - protects nothing
)
django.setup()

from distlock import zk_locked  # noqa: E402 - after the settings
from distlock.celery.queued_once import QueuedOnce  # noqa: E402

app = Celery("benchmark", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(
    ONCE={
        "backend": "celery_once.backends.Redis",
        "settings": {"url": os.environ["BROKER"], "default_timeout": EXPIRY},
    },
    singleton_lock_expiry=EXPIRY,
    worker_prefetch_multiplier=1,
)
board = Redis.from_url(os.environ["BROKER"])

task: Callable[..., Callable[[Callable[..., Any]], Any]] = app.task


def work(key: str, seconds: float) -> None:
    """Say that it has begun, and in which process, and count when it is done."""
    board.rpush(f"began:{key}", f"{os.getpid()} {time.monotonic()}")
    time.sleep(seconds)
    board.incr("done")


@task(name="none", ignore_result=True)
def unlocked(key: str, seconds: float) -> None:
    work(key, seconds)


@task(name="celery-once", base=QueueOnce, once={"keys": ["key"]}, ignore_result=True)
def once(key: str, seconds: float) -> None:
    work(key, seconds)


@task(name="celery-singleton", base=Singleton, unique_on=["key"], ignore_result=True)
def singleton(key: str, seconds: float) -> None:
    work(key, seconds)


@task(name="distlock", ignore_result=True)
@zk_locked("<key>", on_busy="wait", timeout=60)
def locked(key: str, seconds: float) -> None:
    work(key, seconds)


@task(name="distlock, QueuedOnce", base=QueuedOnce, once_ttl=EXPIRY, ignore_result=True)
@zk_locked("<key>", on_busy="wait", timeout=60)
def queued_once(key: str, seconds: float) -> None:
    work(key, seconds)
