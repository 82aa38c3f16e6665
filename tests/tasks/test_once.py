"""``QueuedOnce``: a task is queued once, from being published to its end, over all publishers."""

# ruff: noqa: ARG001 - keys are for the locks

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from celery import Celery, chain, states
from celery.app.task import Context
from celery.exceptions import Ignore, Reject
from django.core.management import call_command
from kombu.exceptions import OperationalError

from distlock import LockBusy, zk_lease, zk_limited, zk_locked
from distlock.celery import queued_once
from distlock.celery.queued_once import AlreadyQueued, QueuedOnce, is_duplicate, release_lost
from distlock_chaos.ports import free_ports
from tests.kit.celery_tools import PATIENCE, Fleet
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions
from tests.tasks.tools import Message, free
from tests.testproject.elsewhere import held_elsewhere
from tests.testproject.tenants import PATH, tenant

pytestmark = pytest.mark.engines("zookeeper", "redis")

TASKS = "tests.testproject.locked_tasks"


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
    eventually(lambda: free(once, key), PATIENCE, "the lease given back")
    second = once.delay(key, key)
    assert second.id != first.id
    assert second.get(timeout=PATIENCE) == key
    assert len(troupe.stage.told(key, "enter")) == 2


@pytest.mark.usefixtures("distlock_settings")
def test_of_many_publishers_one_queues(report: Any) -> None:
    with ThreadPoolExecutor(8) as publishers:
        ids = {one.id for one in publishers.map(report.delay, ["monday"] * 16)}
    assert len(ids) == 1
    assert report.delay("tuesday").id not in ids


def test_each_tenant_queues_its_own(
    report: Any, set_options: SetOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    set_options(KEY_PREFIX=PATH)
    messages = {}
    for name in ("t1", "t2"):
        tenant.set(name)
        messages[name] = Message(report, "monday")
        assert is_duplicate(report.delay("monday"))
    call_command("distlock", "list", "t1:")
    assert "report:report:monday" in capsys.readouterr().out
    release_lost(report, Context(id=messages["t1"].id, headers=messages["t1"].headers))
    assert not free(report, "report:monday")  # of t2, of which this process is still
    tenant.set("t1")
    assert free(report, "report:monday")
    tenant.set("public")


@pytest.mark.usefixtures("distlock_settings")
def test_what_could_not_be_published_is_not_queued(app: Celery, report: Any) -> None:
    (port,) = free_ports(1)
    app.conf.update(
        broker_url=f"redis://127.0.0.1:{port}/0", broker_transport_options={"max_retries": 0}
    )
    with pytest.raises(OperationalError):
        report.delay("monday")
    assert free(report, "report:monday")


@pytest.mark.usefixtures("distlock_settings")
def test_a_chain_that_would_wait_for_ever_is_refused(report: Any) -> None:
    first = report.delay("monday")
    with pytest.raises(LockBusy, match=first.id):
        chain(report.si("monday"), report.si("tuesday")).apply_async()
    assert free(report, "report:tuesday")


ENDS = {
    "ignored": Ignore("no"),
    "rejected": Reject("no"),
    "failed": ZeroDivisionError(),
}


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize("end", ENDS)
def test_every_end_lets_the_next_one_be_queued(app: Celery, key: str, end: str) -> None:
    @app.task(base=QueuedOnce, shared=False)
    @zk_locked("<key>")
    def report(key: str) -> None:
        raise ENDS[end]

    message = Message(report, key)
    message.run()
    assert free(report, key)
    assert report.delay(key).id != message.id


@pytest.mark.usefixtures("distlock_settings")
def test_a_task_that_is_rejected_to_the_queue_stays_queued(app: Celery, key: str) -> None:
    @app.task(base=QueuedOnce, shared=False)
    @zk_locked("<key>")
    def report(key: str) -> None:
        raise Reject("later", requeue=True)

    message = Message(report, key)
    message.run()
    assert report.delay(key).id == message.id


@pytest.mark.usefixtures("distlock_settings")
def test_a_task_that_is_replaced_lets_the_next_one_be_queued(app: Celery, key: str) -> None:
    @app.task(shared=False)
    def other() -> None: ...

    @app.task(base=QueuedOnce, bind=True, shared=False)
    @zk_locked("<key>")
    def report(self: Any, key: str) -> None:
        raise self.replace(other.si())

    Message(report, key).run()
    assert free(report, key)


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize("state", [states.REVOKED, states.FAILURE, states.SUCCESS])
def test_a_task_that_has_ended_by_its_result_blocks_nobody(
    report: Any, key: str, state: str
) -> None:
    """The hard time limit ends a process, and then nobody gives the lease back."""
    first = report.delay(key)
    assert is_duplicate(report.delay(key))
    report.backend.store_result(first.id, None, state)
    second = report.delay(key)
    assert second.id != first.id
    assert not is_duplicate(second)


@pytest.mark.usefixtures("distlock_settings")
def test_a_worker_that_has_stored_the_result_may_still_release(
    report: Any, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would warn that the lease had ended before the task."""
    monkeypatch.setattr(queued_once, "LOOK_SECONDS", PATIENCE)
    first = report.delay(key)
    report.backend.store_result(first.id, None, states.SUCCESS)
    lease = zk_lease(f"{report.name}:report:{key}", 60, owner=first.id)
    with ThreadPoolExecutor(1) as publisher:
        second = publisher.submit(report.delay, key)
        with pytest.raises(TimeoutError):
            second.result(0.5)
        lease.release()
        assert not is_duplicate(second.result(PATIENCE))


@pytest.mark.usefixtures("distlock_settings")
def test_the_worker_takes_the_key_from_the_message(app: Celery, key: str) -> None:
    """JSON makes lists of tuples, so that their text is another one."""

    @app.task(base=QueuedOnce, shared=False)
    @zk_locked("<key>:<pair>")
    def report(key: str, pair: str) -> None: ...

    message = Message(report, key, "sent")
    message.run(key, "received")
    assert free(report, f"{key}:sent")


@pytest.mark.usefixtures("distlock_settings")
def test_a_retry_with_other_arguments_keeps_the_lease(app: Celery, key: str) -> None:
    @app.task(base=QueuedOnce, bind=True, shared=False)
    @zk_locked("<key>:<page>")
    def report(self: Any, key: str, page: int) -> None:
        if page == 1:
            self.retry(args=(key, 2))

    message = Message(report, key, 1)
    message.run()
    assert report.delay(key, 1).id == message.id
    assert free(report, f"{key}:2")
    message.run(key, 2)
    assert free(report, f"{key}:1")


@pytest.mark.usefixtures("distlock_settings")
def test_two_tasks_with_one_lock_are_both_queued(app: Celery, report: Any, key: str) -> None:
    @app.task(base=QueuedOnce, shared=False)
    @zk_locked("report:<day>")
    def other(day: str) -> None: ...

    assert report.delay(key).id != other.delay(key).id


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize("when", ["countdown", "eta"])
def test_the_lease_lasts_from_the_eta_on(report: Any, key: str, when: str) -> None:
    report.once_ttl = 60
    later = {"countdown": 3600, "eta": datetime.now(timezone.utc) + timedelta(hours=1)}[when]
    report.apply_async((key,), **{when: later})
    holder = zk_lease(f"{report.name}:report:{key}", 60).holder()
    assert holder is not None
    assert holder.expires is not None
    remaining = (holder.expires - datetime.now(timezone.utc)).total_seconds()
    assert 3600 < remaining < 3700


@pytest.mark.usefixtures("distlock_settings")
def test_a_call_may_have_a_ttl_of_its_own(report: Any, key: str) -> None:
    first = report.apply_async((key,), once_ttl=0.5)
    eventually(lambda: report.delay(key).id != first.id, PATIENCE, "the lease ended")


@pytest.mark.usefixtures("distlock_settings")
def test_a_duplicate_may_raise(report: Any, key: str) -> None:
    report.on_duplicate = "raise"
    first = report.delay(key)
    with pytest.raises(AlreadyQueued) as refused:
        report.delay(key)
    assert refused.value.task_id == first.id


@pytest.mark.usefixtures("distlock_settings")
def test_a_refused_link_fails_and_not_the_one_before(app: Celery, report: Any, key: str) -> None:
    @app.task(base=QueuedOnce, shared=False)
    @zk_locked("before:<key>")
    def before(key: str) -> None: ...

    report.delay(key)
    message = Message(before, key)
    link = report.si(key)
    result = link.freeze()
    run = message.run(chain=[dict(link)])
    assert run.state == states.SUCCESS
    assert free(before, f"before:{key}")
    assert result.state == states.FAILURE
    assert "queued or runs already" in str(result.result)


@pytest.mark.usefixtures("distlock_settings")
def test_eager_mode_queues_nothing(app: Celery, report: Any) -> None:
    app.conf.task_always_eager = True
    assert [report.delay("monday").get() for _ in range(2)] == ["monday", "monday"]
    assert free(report, "report:monday")


@pytest.mark.parametrize("around", [lambda function: function, zk_limited("<day>", 3)])
def test_a_task_without_a_lock_is_told_what_is_missing(app: Celery, around: Any) -> None:
    @app.task(base=QueuedOnce, shared=False)
    @around
    def report(day: str) -> None: ...

    with pytest.raises(TypeError, match="and no lock"):
        report.delay("monday")


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize("ttl", [0, -1, 604_800_000])
def test_an_implausible_ttl_is_refused(report: Any, ttl: float) -> None:
    report.once_ttl = ttl
    with pytest.raises(ValueError, match="second"):
        report.delay("monday")
