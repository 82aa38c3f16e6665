"""The message of a task that is put off: its headers, its pause and its options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, signals, states

from distlock import LimitReached, LockBusy, zk_limited, zk_locked, zk_semaphore
from distlock.celery.put_off import HEADER
from tests.tasks.tools import Traced
from tests.testproject.elsewhere import held_elsewhere

pytestmark = [
    pytest.mark.usefixtures("distlock_settings"),
    pytest.mark.engines("zookeeper", "redis"),
]


@pytest.fixture
def task(app: Celery) -> Any:
    @app.task(shared=False)
    @zk_locked("<key>", on_busy="retry", timeout=0)
    def report(key: str) -> str:
        return key

    return report


@contextmanager
def published() -> Iterator[list[dict[str, Any]]]:
    """Collect the headers of the messages that are published."""
    found: list[dict[str, Any]] = []

    def note(headers: dict[str, Any], **_: Any) -> None:
        found.append(headers)

    signals.before_task_publish.connect(note, weak=False)
    try:
        yield found
    finally:
        signals.before_task_publish.disconnect(note)


def test_the_way_of_a_message_is_not_published_again(task: Any, key: str) -> None:
    """RabbitMQ would take the next delay for a circle and drop the message."""
    way = {"x-death": [{"queue": "delay", "count": 1}], "x-first-death-queue": "delay"}
    with held_elsewhere(key), published() as messages:
        run = Traced(task, key, headers={**way, "x-trace": "mine"})
    assert run.state == states.RETRY
    assert messages[0]["x-trace"] == "mine"
    assert not [name for name in messages[0] if "death" in name]


def test_a_call_that_stores_no_result_stores_none_later(task: Any, key: str) -> None:
    with held_elsewhere(key), published() as messages:
        Traced(task, key, ignore_result=True)
        Traced(task, key, ignore_result=False)
    assert [message["ignore_result"] for message in messages] == [True, False]


@pytest.mark.parametrize("policy", ["retry", "queue"])
def test_a_pause_ends_before_the_broker_delivers_again(
    app: Celery, key: str, settings: Any, policy: Any
) -> None:
    app.conf.broker_transport_options = {"visibility_timeout": 5}
    settings.DISTLOCK = {"default": {**settings.DISTLOCK["default"], "RETRY_AFTER": 60}}

    @app.task(shared=False)
    @zk_locked("<key>", on_busy=policy, timeout=0)
    def report(key: str) -> str:
        return key

    with held_elsewhere(key):
        run = Traced(report, key)
    assert run.state == states.RETRY
    assert run.error.when == 2.5


def test_a_pause_of_the_tasks_own_does_not_grow(app: Celery, key: str) -> None:
    @app.task(shared=False)
    @zk_locked("<key>", timeout=0, busy_pause=timedelta(minutes=2), busy_deadline=None)
    def report(key: str) -> str:
        return key

    record = {"busy": 20, "away": 0, "since": 1}
    with held_elsewhere(key):
        pauses = [Traced(report, key, headers={HEADER: record}).error.when for _ in range(3)]
    assert all(60 <= pause <= 120 for pause in pauses)


@pytest.mark.parametrize("options", [{"busy_limit": 1}, {"busy_deadline": 60}])
def test_who_gets_no_permit_in_the_end_says_that_the_limit_is_reached(
    app: Celery, key: str, options: dict[str, Any]
) -> None:
    @app.task(shared=False)
    @zk_limited("<key>", 1, **options)
    def report(key: str) -> str:
        return key

    with zk_semaphore(key, 1):
        last = Traced(report, key, headers={HEADER: {"busy": 1, "away": 0, "since": 1}})
    assert (last.state, type(last.error)) == (states.FAILURE, LimitReached)
    assert "put off 1 times" in str(last.error)


def test_a_locked_run_that_a_subclass_calls_is_put_off(app: Celery, key: str) -> None:
    class Base(app.Task):  # type: ignore[misc]
        @zk_locked("<key>", on_busy="retry", timeout=0)
        def run(self, key: str) -> str:
            return key

    class Sub(Base):
        name = "sub"

        def run(self, key: str) -> str:
            return super().run(key).upper()

    task = app.register_task(Sub())
    with held_elsewhere(key):
        assert Traced(task, key).state == states.RETRY


def test_a_locked_function_that_a_task_calls_is_not_put_off(app: Celery, key: str) -> None:
    @zk_locked("<key>", on_busy="retry", timeout=0)
    def helper(key: str) -> str:
        return key

    @app.task(shared=False)
    def report(key: str) -> str:
        return helper(key)

    with held_elsewhere(key):
        assert isinstance(Traced(report, key).error, LockBusy)
