"""``QueuedOnce``: a task is queued once, from being published to its end, over all publishers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from celery import chain, states
from kombu.exceptions import OperationalError

from distlock import LockBusy, zk_lease, zk_locked
from distlock.once import QueuedOnce
from distlock.testing.server import free_ports
from tests.celery_tools import PATIENCE
from tests.helpers import eventually
from tests.testproject.elsewhere import held_elsewhere

if TYPE_CHECKING:
    from celery import Celery

    from tests.celery_tools import Fleet

TASKS = "tests.testproject.locked_tasks"


@pytest.fixture
def report(app: Celery) -> Any:
    """A task whose messages nobody takes."""

    @app.task(base=QueuedOnce, shared=False)
    @zk_locked("report:<day>")
    def report(day: str) -> str:
        return day

    return report


def free(key: str) -> bool:
    return not zk_lease(key, 60).locked()


def test_a_duplicate_is_the_first_one_until_that_has_ended(troupe: Fleet, key: str) -> None:
    once = troupe.task("once", TASKS)
    with held_elsewhere(key):
        first = once.delay(key, key)
        assert once.delay(key, key).id == first.id
        eventually(lambda: first.state == states.RETRY, PATIENCE, "the first one put off")
        assert once.delay(key, key).id == first.id
    troupe.stage.await_entry(key)
    duplicate = once.delay(key, key)
    assert duplicate.id == first.id
    troupe.stage.let_go(key)
    assert duplicate.get(timeout=PATIENCE) == key
    eventually(lambda: free(key), PATIENCE, "the lease given back")
    second = once.delay(key, key)
    assert second.id != first.id
    assert second.get(timeout=PATIENCE) == key
    assert len(troupe.stage.told(key, "enter")) == 2


def test_a_task_that_fails_lets_the_next_one_be_queued(troupe: Fleet, key: str) -> None:
    task = troupe.task("once_and_fails", TASKS)
    first = task.delay(key)
    with pytest.raises(ZeroDivisionError):
        first.get(timeout=PATIENCE)
    eventually(lambda: free(f"{key}:{task.name}"), PATIENCE, "the lease given back")
    assert task.delay(key).id != first.id


@pytest.mark.usefixtures("distlock_settings")
def test_of_many_publishers_one_queues(report: Any) -> None:
    with ThreadPoolExecutor(8) as publishers:
        ids = {one.id for one in publishers.map(report.delay, ["monday"] * 16)}
    assert len(ids) == 1
    assert report.delay("tuesday").id not in ids


@pytest.mark.usefixtures("distlock_settings")
def test_the_lease_of_a_lost_task_ends_by_itself(report: Any) -> None:
    report.once_ttl = 1
    first = report.delay("monday")
    eventually(lambda: report.delay("monday").id != first.id, PATIENCE, "the lease ended")


@pytest.mark.usefixtures("distlock_settings")
def test_what_could_not_be_published_is_not_queued(app: Celery, report: Any) -> None:
    (port,) = free_ports(1)
    app.conf.update(
        broker_url=f"redis://127.0.0.1:{port}/0", broker_transport_options={"max_retries": 0}
    )
    with pytest.raises(OperationalError):
        report.delay("monday")
    assert free("report:monday")


@pytest.mark.usefixtures("distlock_settings")
def test_a_chain_that_would_wait_for_ever_is_refused(report: Any) -> None:
    first = report.delay("monday")
    with pytest.raises(LockBusy, match=first.id):
        chain(report.si("monday"), report.si("tuesday")).apply_async()
    assert free("report:tuesday")


@pytest.mark.usefixtures("distlock_settings")
def test_eager_mode_queues_nothing(app: Celery, report: Any) -> None:
    app.conf.task_always_eager = True
    assert [report.delay("monday").get() for _ in range(2)] == ["monday", "monday"]
    assert free("report:monday")


def test_a_task_without_a_lock_is_told_what_is_missing(app: Celery) -> None:
    @app.task(base=QueuedOnce, shared=False)
    def report(day: str) -> None: ...

    with pytest.raises(TypeError, match="no lock, whose key"):
        report.delay("monday")


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize("ttl", [0, -1, 604_800_000])
def test_an_implausible_ttl_is_refused(report: Any, ttl: float) -> None:
    report.once_ttl = ttl
    with pytest.raises(ValueError, match="second"):
        report.delay("monday")
