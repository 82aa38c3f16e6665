"""Queued-once tasks that end in every way, in real workers: the next one is queued at once.

They store no results, so the result backend cannot tell the next publisher that they have ended.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from distlock import zk_lease
from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import PATIENCE, Fleet, Worker, fleet
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.tasks.tools import BROKERS, broker_settings

pytestmark = pytest.mark.deep

TASKS = "tests.testproject.once_tasks"


@pytest.fixture(scope="module", params=BROKERS)
def module_fleet(
    request: pytest.FixtureRequest,
    *,
    zookeeper: ZooKeeper,
    redis: Redis,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    broker, celery = broker_settings(request, redis)
    celery["imports"] = [TASKS]
    with fleet(zookeeper, folder, broker, celery=celery, SESSION_TIMEOUT=10) as one:
        one.app.loader.import_task_module(TASKS)
        yield one


@pytest.fixture(scope="module")
def worker(module_fleet: Fleet) -> Iterator[Worker]:
    """One with a single child, so that a task stays in the main process while another plays."""
    with module_fleet.worker(concurrency=1) as worker:
        yield worker


@pytest.fixture
def ends(troupe: Fleet) -> Any:
    return troupe.task("ends", TASKS)


def send(task: Any, key: str, how: str = "", **options: Any) -> Any:
    return task.apply_async((key, how), ignore_result=True, **options)


def await_next(troupe: Fleet, task: Any, key: str, first: Any) -> None:
    """Wait until `delay()` queues another task than the first, and for its end."""

    def queues() -> Any:
        result = task.delay(key)
        return result.id != first.id and result

    result = eventually(queues, PATIENCE, "the next one queued")
    troupe.stage.let_go(key)
    assert result.get(timeout=PATIENCE) == key


def plays(troupe: Fleet, key: str) -> int:
    """The process in which the task plays."""
    return troupe.stage.await_entry(key).pid


def test_revoked_before_its_start(troupe: Fleet, worker: Worker, ends: Any, key: str) -> None:
    troupe.task("play").delay(f"{key}-before")
    troupe.stage.await_entry(f"{key}-before")
    first = send(ends, key)
    first.revoke()
    eventually(lambda: f"revoked: {first.id}" in worker.log, PATIENCE, "the worker knows it")
    troupe.stage.let_go(f"{key}-before")
    await_next(troupe, ends, key, first)
    assert len(troupe.stage.told(key, "enter")) == 1


def test_expired_before_its_start(troupe: Fleet, worker: Worker, ends: Any, key: str) -> None:
    troupe.task("play").delay(f"{key}-before")
    troupe.stage.await_entry(f"{key}-before")
    first = send(ends, key, expires=2)
    eventually(lambda: f"[{first.id}] received" in worker.log, PATIENCE, "its message taken")
    expired = time.monotonic() + 2
    eventually(lambda: time.monotonic() > expired, PATIENCE)
    troupe.stage.let_go(f"{key}-before")
    await_next(troupe, ends, key, first)
    assert len(troupe.stage.told(key, "enter")) == 1


def test_expired_where_nobody_takes_it(troupe: Fleet, ends: Any, key: str) -> None:
    """RabbitMQ drops the message, and no worker hears of it."""
    first = send(ends, key, expires=1, queue="nobodys")
    await_next(troupe, ends, key, first)


@pytest.mark.usefixtures("worker")
def test_a_run_that_began_in_time_stays_queued(troupe: Fleet, ends: Any, key: str) -> None:
    first = send(ends, key, expires=30)
    plays(troupe, key)
    holder = zk_lease(f"{ends.name}:{key}", 60).holder()
    assert holder is not None
    assert holder.expires is not None
    assert holder.expires > datetime.now(timezone.utc) + timedelta(seconds=60)
    assert ends.delay(key).id == first.id
    troupe.stage.let_go(key)
    await_next(troupe, ends, key, first)


@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
@pytest.mark.usefixtures("worker")
def test_revoked_while_it_runs(troupe: Fleet, ends: Any, key: str, number: str) -> None:
    first = send(ends, key)
    plays(troupe, key)
    first.revoke(terminate=True, signal=number)
    await_next(troupe, ends, key, first)


@pytest.mark.parametrize("how", ["", "stubborn"])
@pytest.mark.usefixtures("worker")
def test_the_hard_time_limit(troupe: Fleet, ends: Any, key: str, how: str) -> None:
    """Celery sends SIGTERM, which a stubborn task does not hear, and then SIGKILL."""
    first = send(ends, key, how, time_limit=1)
    await_next(troupe, ends, key, first)


@pytest.mark.usefixtures("worker")
def test_its_process_killed(troupe: Fleet, ends: Any, key: str) -> None:
    first = send(ends, key)
    os.kill(plays(troupe, key), signal.SIGKILL)
    await_next(troupe, ends, key, first)
