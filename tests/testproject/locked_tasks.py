"""Celery tasks with each policy of ``on_busy``, for real workers."""

# ruff: noqa: ARG001 - keys are for the locks

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from celery import shared_task

from distlock import LockBusy, zk_limited, zk_locked
from distlock.celery.put_off import HEADER
from distlock.celery.queued_once import QueuedOnce
from tests.testproject.tasks import stage

if TYPE_CHECKING:
    from collections.abc import Callable

task: Callable[..., Callable[[Callable[..., Any]], Any]] = shared_task


@task(max_retries=0)
@zk_locked("<key>")
def default(key: str, actor: str) -> str:
    stage().play(actor)
    return actor


@task(bind=True, max_retries=0)
@zk_locked("<key>", on_busy="retry")
def retry(self: Any, key: str, actor: str) -> dict[str, Any]:
    stage().tell(actor, "enter", key)
    stage().tell(actor, "leave", key)
    request = self.request
    return {"id": request.id, "retries": request.retries, "headers": request.headers}


@task(max_retries=0)
@zk_limited("<key>", 2)
def two_at_a_time(key: str, actor: str) -> str:
    """Tell when it is inside."""
    stage().tell(key, "enter", actor)
    time.sleep(0.2)
    stage().tell(key, "leave", actor)
    return actor


@task(max_retries=0)
@zk_limited({"all of <key>": 2, "<key>": 1})
def by_two_rules(key: str, actor: str) -> str:
    return actor


@task(max_retries=0)
@zk_locked("<key>", on_busy="queue")
def queue(key: str, actor: str, seconds: float = 0) -> str:
    """Hold the lock for a time, and tell in which order."""
    stage().tell(key, "enter", actor)
    time.sleep(seconds)
    stage().tell(key, "leave", actor)
    return actor


def _may_die(self: Any, _task_id: str, args: Any, _kwargs: Any) -> None:
    """Kill the child of an actor that "dies" between its wake and the acquire, once."""
    actor = args[-1]
    woken = HEADER in (self.request.headers or {})
    if "dies" in actor and woken and not stage().told(actor, "dies"):
        stage().tell(actor, "dies")
        os.kill(os.getpid(), signal.SIGKILL)


@task(max_retries=0, before_start=_may_die)
@zk_locked("<key>", on_busy="queue", timeout=0)
def queue_at_once(key: str, actor: str) -> str:
    """Tell in which order; a first actor goes when the audience says so."""
    stage().tell(key, "enter", actor)
    if actor.startswith("first-"):
        stage().play(actor)
    return actor


@task(max_retries=0, before_start=_may_die)
@zk_limited("<key>", 2, on_busy="queue")
def queue_for_two(key: str, actor: str) -> str:
    """As above, for two at a time."""
    stage().tell(key, "enter", actor)
    if actor.startswith("first-"):
        stage().play(actor)
    return actor


@task(max_retries=0, acks_late=True, reject_on_worker_lost=True, before_start=_may_die)
@zk_limited({"all of <key>": 2, "<key>:<customer>": 1}, on_busy="queue")
def queue_by_two_rules(key: str, customer: str, actor: str) -> str:
    """As above, for one at a time of each customer, and two in all."""
    stage().tell(key, "enter", actor)
    if actor.startswith("first-"):
        stage().play(actor)
    return actor


@task()
@zk_locked("<key>", on_busy="retry", busy_limit=2)
def limited(key: str, actor: str) -> None: ...


@task()
@zk_locked("<key>", on_busy="retry", busy_deadline=0.5)
def hurried(key: str, actor: str) -> None: ...


@task()
@zk_locked("<key>", on_busy="skip", timeout=0)
def skip(key: str, actor: str) -> str:
    stage().play(actor)
    return actor


@task()
@zk_locked("<key>", on_busy="raise", timeout=0)
def refuse(key: str, actor: str) -> str:
    return actor


@task()
@zk_locked("<key>", on_busy="wait", timeout=60)
def patient(key: str, actor: str) -> str:
    return actor


def _later(busy: LockBusy, key: str, actor: str) -> str:
    return f"{actor} does without {busy.key}"


@task()
@zk_locked("<key>", on_busy=_later, timeout=0)
def answer(key: str, actor: str) -> str:
    return actor


@task(bind=True, max_retries=1, default_retry_delay=0)
@zk_locked("<key>", on_busy="skip", timeout=0)
def retries_inside(self: Any, key: str, actor: str) -> str:
    """Retry while the lock is held, and go on holding it for a while."""
    if not self.request.retries:
        self.retry(throw=False)
        stage().play(actor)
        return "first"
    stage().tell(actor, "second")
    return "second"


@task(autoretry_for=(ZeroDivisionError,), max_retries=2, default_retry_delay=0)
@zk_locked("<key>")
def fails_at_first(key: str, actor: str) -> int:
    stage().tell(actor, "enter")
    return 1 // (len(stage().told(actor, "enter")) - 1)


@task()
@zk_locked("<key>")
def name_itself(key: str, actor: str) -> str:
    return actor


@task()
@zk_locked("<key>")
def work(key: str, actor: str, seconds: float) -> str:
    """Hold the lock for a time."""
    stage().tell(actor, "enter", key)
    time.sleep(seconds)
    stage().tell(actor, "leave", key)
    return actor


@task(base=QueuedOnce, once_ttl=120)
@zk_locked("<key>")
def once(key: str, actor: str) -> str:
    stage().play(actor)
    return actor


@task(
    base=QueuedOnce,
    bind=True,
    once_ttl=120,
    unlock_at_start=True,
    max_retries=1,
    default_retry_delay=0,
)
@zk_locked("<key>")
def once_until_start(self: Any, key: str, actor: str, end: str = "") -> str:
    """Play, and end well, or as `end` says."""
    stage().play(actor)
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "retries":
        self.retry()
    if end == "failure":
        raise ZeroDivisionError
    return actor


@task(base=QueuedOnce, once_ttl=120, on_duplicate="replace")
@zk_locked("<key>")
def newest(key: str, actor: str) -> str:
    stage().play(actor)
    return actor


late = {"acks_late": True, "reject_on_worker_lost": True}


@task(**late)
@zk_locked("<key>")
def late_retry(key: str, actor: str) -> str:
    stage().play(actor)
    return actor


@task(**late)
@zk_locked("<key>", on_busy="wait")
def late_wait(key: str, actor: str) -> str:
    stage().play(actor)
    return actor


@task(ignore_result=True)
@zk_locked("<key>")
def ignored(key: str, actor: str) -> str:
    stage().tell(actor, "enter")
    return actor


@task()
def join(names: list[str], key: str = "") -> str:
    return "+".join(map(str, names))


@task()
@zk_locked("joined:<key>", on_busy="retry")
def locked_join(names: list[str], key: str) -> str:
    return "+".join(map(str, names))


@task()
@zk_locked("<key>", on_busy="retry")
def append(before: str, key: str, actor: str) -> str:
    return f"{before}+{actor}"
