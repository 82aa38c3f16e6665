"""``on_duplicate="replace"``: the newer message of a task takes the place of the queued one."""

# ruff: noqa: ARG001 - keys are for the locks

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from celery import Celery, chain, signals, states
from kombu.exceptions import OperationalError
from pytest_django import Settings

from distlock import zk_lease, zk_locked
from distlock.celery import queued_once
from distlock.celery.queued_once import QueuedOnce, Replaced, record_of
from distlock_chaos.ports import free_ports
from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import PATIENCE, Fleet, fleet
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import Owner
from tests.tasks.tools import BROKERS, Message, Traced, broker_settings, free
from tests.testproject.elsewhere import held_elsewhere

pytestmark = pytest.mark.deep

TASKS = "tests.testproject.locked_tasks"


@pytest.fixture(scope="module", params=BROKERS)
def brokers_fleet(
    request: pytest.FixtureRequest,
    zookeeper: ZooKeeper,
    redis: Redis,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """A worker behind each broker."""
    broker, celery = broker_settings(request, redis)
    folder = tmp_path_factory.mktemp("fleet")
    with fleet(zookeeper, folder, broker, celery=celery, RETRY_AFTER=0.1) as one, one.worker():
        yield one


@pytest.fixture
def troupe(brokers_fleet: Fleet, settings: Settings) -> Fleet:
    settings.DISTLOCK = brokers_fleet.distlock
    return brokers_fleet


@pytest.fixture
def said() -> list[str]:
    """The arguments of the runs."""
    return []


@pytest.fixture
def index(app: Celery, said: list[str]) -> Any:
    """A task that is replaced, and whose messages nobody takes."""

    @app.task(base=QueuedOnce, on_duplicate="replace", shared=False)
    @zk_locked("<key>")
    def index(key: str, text: str) -> None:
        said.append(text)

    return index


def assert_replaced(result: Any, newer: str) -> None:
    eventually(lambda: result.state == states.REVOKED, PATIENCE, "the older one ended")
    with pytest.raises(Replaced, match=newer) as replaced:
        result.get(timeout=PATIENCE)
    assert replaced.value.task_id == newer


@contextmanager
def at(signal: Any, task: Any, do: Callable[[Any], None]) -> Iterator[None]:
    """Call `do` with the headers of a task's next message, just before or after it is sent."""

    def receiver(headers: Any, **_: Any) -> None:
        signal.disconnect(receiver, sender=task.name)
        do(headers)

    signal.connect(receiver, sender=task.name, weak=False)
    try:
        yield
    finally:
        signal.disconnect(receiver, sender=task.name)


def test_the_newer_one_replaces_one_that_is_put_off(troupe: Fleet, key: str) -> None:
    task = troupe.task("newest", TASKS)
    with held_elsewhere(key):
        first = task.delay(key, f"{key}-1")
        eventually(lambda: first.state == states.RETRY, PATIENCE, "the first one put off")
        second = task.delay(key, f"{key}-2")
        assert_replaced(first, second.id)
    troupe.stage.let_go(f"{key}-2")
    assert second.get(timeout=PATIENCE) == f"{key}-2"
    assert not troupe.stage.told(f"{key}-1", "enter")
    assert free(task, key)


def test_one_that_a_worker_takes_before_the_replacement_is_recorded_never_runs(
    troupe: Fleet, key: str
) -> None:
    task = troupe.task("newest", TASKS)
    with held_elsewhere(key) as lock:
        first = task.delay(key, f"{key}-1")
        eventually(lambda: first.state == states.RETRY, PATIENCE, "the first one put off")

        def free(_: Any) -> None:
            lock.set()
            end = time.monotonic() + 1
            ran = partial(troupe.stage.told, f"{key}-1", "enter")
            eventually(lambda: ran() or time.monotonic() > end, PATIENCE)

        with at(signals.after_task_publish, task, free):
            second = task.delay(key, f"{key}-2")
    troupe.stage.let_go(f"{key}-2")
    assert second.get(timeout=PATIENCE) == f"{key}-2"
    assert_replaced(first, second.id)
    assert not troupe.stage.told(f"{key}-1", "enter")


def test_one_that_runs_is_not_replaced(troupe: Fleet, key: str) -> None:
    task = troupe.task("newest", TASKS)
    first = task.delay(key, f"{key}-1")
    troupe.stage.await_entry(f"{key}-1")
    second = task.delay(key, f"{key}-2")
    eventually(lambda: second.state == states.RETRY, PATIENCE, "the second one put off")
    third = task.delay(key, f"{key}-3")
    for actor, result in ((f"{key}-1", first), (f"{key}-3", third)):
        troupe.stage.let_go(actor)
        assert result.get(timeout=PATIENCE) == actor
    assert_replaced(second, third.id)


@pytest.mark.usefixtures("distlock_settings")
def test_of_many_messages_one_runs(index: Any, key: str, said: list[str]) -> None:
    with ThreadPoolExecutor(8) as publishers:
        messages = list(publishers.map(lambda n: Message(index, key, str(n)), range(16)))
    ran = [message for message in messages if message.run().state == states.SUCCESS]
    assert len(ran) == len(said) == 1
    for message in messages:
        if message is not ran[0]:
            assert isinstance(message.result.result, Replaced)


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize("newer", ["is not sent", "waits", "has ended"])
def test_one_that_comes_while_the_newer_one_is_published_never_runs(
    index: Any, key: str, said: list[str], newer: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = Message(index, key, "old")
    runs: list[Future[Any]] = []

    def come(headers: Any) -> None:
        if newer == "has ended":
            Traced(index, key, "new", task_id=headers["id"], headers=dict(headers))
        runs.append(worker.submit(first.run))
        wait(runs, timeout=1)  # it cannot end, for it waits for the publisher

    moment = signals.before_task_publish if newer == "is not sent" else signals.after_task_publish
    with Owner() as worker:
        with at(moment, index, come):
            second = Message(index, key, "new")
        assert runs[0].result(PATIENCE).state == states.IGNORED
    assert_replaced(first.result, second.id)
    if newer != "has ended":
        assert second.run().state == states.SUCCESS
    assert said == ["new"]
    assert not record_of(first.id, "default").locked()
    assert "once_ttl" not in caplog.text


@pytest.mark.usefixtures("distlock_settings")
def test_one_whose_newer_one_was_never_published_runs(
    index: Any, key: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher dies after it has taken the lease."""
    monkeypatch.setattr(queued_once, "PUBLICATION", 1)
    first = Message(index, key, "old")
    lease = zk_lease(f"{index.name}:{key}", 60, owner="newer")
    assert index._first(lease, []) is None
    assert first.run().state == states.SUCCESS
    assert said == ["old"]


@pytest.mark.usefixtures("distlock_settings")
def test_a_replaced_one_drops_itself_after_the_newer_one_has_ended(
    index: Any, key: str, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Message(index, key, "old"), Message(index, key, "new")
    second.run()
    for _ in range(2):  # the second one is a copy
        assert first.run().state == states.IGNORED
    assert said == ["new"]
    assert_replaced(first.result, second.id)
    assert not record_of(first.id, "default").locked()
    assert "once_ttl" not in caplog.text


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize("newer", ["waits", "has ended"])
def test_a_replaced_one_is_not_put_off(index: Any, key: str, newer: str) -> None:
    first, second = Message(index, key, "old"), Message(index, key, "new")
    if newer == "has ended":
        second.run()
    with held_elsewhere(key):
        assert first.run().state == states.IGNORED
    assert_replaced(first.result, second.id)


@pytest.mark.usefixtures("distlock_settings")
def test_an_id_that_is_published_twice_is_replaced_twice(index: Any, key: str) -> None:
    first, twice = f"{key}-first", f"{key}-twice"
    for task_id in (twice, first, twice):
        index.apply_async((key, "old"), task_id=task_id)
    newest = Message(index, key, "new")
    holder = zk_lease(f"{index.name}:{key}", 60).holder()
    assert holder is not None
    assert holder.owner_id == newest.id


@pytest.mark.usefixtures("distlock_settings")
def test_what_could_not_be_published_replaces_nothing(
    app: Celery, index: Any, key: str, said: list[str]
) -> None:
    first = Message(index, key, "old")
    (port,) = free_ports(1)
    with (
        app.connection_for_write(
            f"redis://127.0.0.1:{port}/0", transport_options={"max_retries": 0}
        ) as away,
        pytest.raises(OperationalError),
    ):
        index.apply_async((key, "new"), connection=away)
    assert first.run().state == states.SUCCESS
    assert said == ["old"]


@pytest.mark.usefixtures("distlock_settings")
def test_one_whose_lease_has_ended_runs(
    index: Any, key: str, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    first = Message(index, key, "old")
    zk_lease(f"{index.name}:{key}", 60, owner=first.id).release()
    assert first.run().state == states.SUCCESS
    assert "once_ttl is too short" in caplog.text


@pytest.mark.usefixtures("distlock_settings")
def test_what_waits_for_a_replaced_one_waits_no_more(app: Celery, index: Any, key: str) -> None:
    """A chain fails with its replaced link."""
    last = index.si(f"{key}-last", "last")
    result = last.freeze()
    first = Message(index, key, "old")
    second = Message(index, key, "new")
    first.run(chain=[dict(last)])
    assert result.state == states.REVOKED
    assert_replaced(result, second.id)


@pytest.mark.usefixtures("distlock_settings")
def test_a_link_of_a_chain_replaces_one_that_is_queued(index: Any, key: str) -> None:
    first = Message(index, key, "old")
    result = chain(index.si(key, "new"), index.si(f"{key}-last", "last")).apply_async()
    assert first.run().state == states.IGNORED
    assert_replaced(first.result, result.parent.id)
