"""``unlock_at_start``: the next one may be queued from the moment when a run begins."""

# ruff: noqa: ARG001 - keys are for the locks

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, states
from celery.exceptions import Reject

from distlock import zk_lease, zk_locked
from distlock.celery.once_requests import OnceRequest
from distlock.celery.queued_once import QueuedOnce, is_duplicate
from tests.kit.celery_tools import PATIENCE, Fleet
from tests.kit.helpers import eventually
from tests.tasks.tools import Message, free
from tests.testproject.elsewhere import held_elsewhere

TASKS = "tests.testproject.locked_tasks"


@pytest.fixture
def runs() -> list[Callable[[Any], None]]:
    """What the runs of the task do, one after the other; those after the last do nothing."""
    return []


@pytest.fixture
def report(app: Celery, runs: list[Callable[[Any], None]]) -> Any:
    """A task that unlocks at its start, and whose messages nobody takes."""

    @app.task(base=QueuedOnce, unlock_at_start=True, bind=True, shared=False)
    @zk_locked("<key>")
    def report(self: Any, key: str) -> None:
        if runs:
            runs.pop(0)(self)

    return report


def test_the_next_one_is_queued_while_one_runs(troupe: Fleet, key: str) -> None:
    task = troupe.task("once_until_start", TASKS)
    with held_elsewhere(key):
        first = task.delay(key, f"{key}-1")
        eventually(lambda: first.state == states.RETRY, PATIENCE, "the first one put off")
        assert is_duplicate(task.delay(key, f"{key}-2"))
    troupe.stage.await_entry(f"{key}-1")
    second = task.delay(key, f"{key}-2")
    assert is_duplicate(task.delay(key, f"{key}-3"))
    eventually(lambda: second.state == states.RETRY, PATIENCE, "the second one put off")
    for actor, result in ((f"{key}-1", first), (f"{key}-2", second)):
        troupe.stage.let_go(actor)
        assert result.get(timeout=PATIENCE) == actor
    assert free(task, key)


@pytest.mark.parametrize("end", ["failure", "retries", "killed"])
def test_however_often_one_is_asked_for_during_a_run_it_runs_once_more(
    troupe: Fleet, key: str, end: str
) -> None:
    task = troupe.task("once_until_start", TASKS)
    first = task.delay(key, f"{key}-1", end)
    troupe.stage.await_entry(f"{key}-1")
    second = task.delay(key, f"{key}-2")
    assert {task.delay(key, f"{key}-3").id for _ in range(3)} == {second.id} != {first.id}
    eventually(lambda: second.state == states.RETRY, PATIENCE, "the second one put off")
    for actor in (f"{key}-1", f"{key}-2"):
        troupe.stage.let_go(actor)
    assert second.get(timeout=PATIENCE) == f"{key}-2"
    if end == "retries":  # Celery may store its RETRY after its FAILURE
        troupe.stage.await_entry(f"{key}-1", 2, PATIENCE)
    else:
        eventually(lambda: first.state == states.FAILURE, PATIENCE, "the first one ended")
    assert not troupe.stage.told(f"{key}-3", "enter")
    assert free(task, key)


@pytest.mark.usefixtures("distlock_settings")
def test_a_run_that_has_begun_leaves_the_lease_of_the_next_one(
    report: Any, runs: list[Any], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    message, nested = Message(report, key), []
    runs.append(lambda task: nested.append(task.delay(key)))
    assert message.run().state == states.SUCCESS
    assert nested[0].id != message.id
    assert report.delay(key).id == nested[0].id
    assert "once_ttl" not in caplog.text


@pytest.mark.usefixtures("distlock_settings")
def test_a_retry_is_queued_no_longer(
    report: Any, runs: list[Any], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    message = Message(report, key)
    runs.append(lambda task: task.retry())
    assert message.run().state == states.RETRY
    second = report.delay(key)
    assert second.id != message.id
    with held_elsewhere(key):
        assert message.run(retries=1).state == states.RETRY
    assert message.run(retries=1).state == states.SUCCESS
    assert report.delay(key).id == second.id
    assert "once_ttl" not in caplog.text


@pytest.mark.usefixtures("distlock_settings")
def test_a_copy_of_a_run_that_has_begun_leaves_the_lease_of_the_next_one(
    report: Any, runs: list[Any], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    def to_the_queue(task: Any) -> None:
        raise Reject("later", requeue=True)

    message = Message(report, key)
    runs.append(to_the_queue)
    message.run()
    second = report.delay(key)
    assert second.id != message.id
    message.run(delivery_info={"exchange": "", "routing_key": "celery", "redelivered": True})
    assert report.delay(key).id == second.id
    assert "once_ttl" not in caplog.text


@pytest.mark.usefixtures("distlock_settings")
def test_a_task_begins_with_the_last_of_its_locks(app: Celery, key: str) -> None:
    @app.task(base=QueuedOnce, unlock_at_start=True, shared=False)
    @zk_locked("<key>")
    @zk_locked("inner:<key>")
    def report(key: str) -> None: ...

    message = Message(report, key)
    with held_elsewhere(f"inner:{key}"):
        assert message.run().state == states.RETRY
    assert report.delay(key).id == message.id
    message.run()
    assert free(report, key)


@pytest.mark.usefixtures("distlock_settings")
def test_a_skipped_task_gives_the_lease_back(app: Celery, key: str) -> None:
    @app.task(base=QueuedOnce, unlock_at_start=True, shared=False)
    @zk_locked("<key>", on_busy="skip", timeout=0)
    def report(key: str) -> None: ...

    message = Message(report, key)
    with held_elsewhere(key):
        message.run()
    assert free(report, key)


@pytest.mark.parametrize(
    ("options", "error", "advice"),
    [
        ({"on_duplicate": "drop"}, ValueError, "one of 'return', 'raise', 'replace'"),
        ({"replace": True}, TypeError, 'on_duplicate="replace"'),
    ],
)
def test_a_wrong_option_is_told_where_the_task_is_declared(
    app: Celery, options: dict[str, Any], error: type[Exception], advice: str
) -> None:
    with pytest.raises(error, match=advice):

        @app.task(base=QueuedOnce, shared=False, lazy=False, **options)
        def report(day: str) -> None: ...


# --- the worker's main process -------------------------------------------------------------------


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize(
    ("soft", "options", "free"),
    [
        (False, {"acks_late": False}, True),
        (False, {"acks_late": True}, True),
        (False, {"acks_late": True, "acks_on_failure_or_timeout": False}, False),
        (True, {"acks_late": False}, False),
    ],
    ids=["early", "late", "comes-again", "soft"],
)
def test_the_lease_ends_unless_the_message_comes_again(
    app: Celery, key: str, soft: bool, options: dict[str, Any], free: bool
) -> None:
    app.conf.task_default_queue = key

    @app.task(base=QueuedOnce, shared=False, **options)
    @zk_locked("<key>")
    def report(key: str) -> None: ...

    report.delay(key)
    with app.connection_for_read() as connection:
        message = app.amqp.queues[key](connection.default_channel).get()
        answers = {"on_ack": message.ack_log_error, "on_reject": message.reject_log_error}
        request = OnceRequest(message, app=app, task=report, **answers)
        request.on_accepted(1, 0.0)
        request.on_timeout(soft, 1)
    assert zk_lease(f"{report.name}:{key}", 60).locked() is not free
