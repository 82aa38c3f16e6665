"""A message that the broker delivers twice (celery 5935), in real workers with Redis.

The holder's node names the task and its id, so a copy can be told from a rival.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, states
from redis import Redis as Client

from distlock import zk_lock, zk_locked
from distlock.celery import runs
from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import PATIENCE, Fleet, Worker, fleet
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import Owner
from tests.tasks.tools import Traced
from tests.testproject.elsewhere import held_elsewhere, in_line

pytestmark = pytest.mark.deep

TASKS = "tests.testproject.locked_tasks"
#: How long a dead holder's session lives; a copy waits one and a half times that.
SESSION_SECONDS = 8


@pytest.fixture(scope="module")
def module_fleet(
    zookeeper: ZooKeeper, redis: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    broker = redis.new_database()
    # The session reaper would end a dead one's session before its message comes back.
    celery = {"distlock_session_reaper": False}
    with fleet(zookeeper, folder, broker, celery=celery, SESSION_TIMEOUT=SESSION_SECONDS) as one:
        yield one


def deliver_again(troupe: Fleet) -> None:
    """Give out all messages that are not acknowledged: kombu does it by the clock."""
    with troupe.app.connection_for_write() as connection:
        channel = connection.default_channel
        channel.visibility_timeout = 0
        channel.qos.restore_visible(num=100)


def dropped(worker: Worker, result: Any) -> bool:
    lines = (line for line in worker.log.splitlines() if str(result.id) in line)
    return any("dropped" in line for line in lines)


def test_copies_of_running_tasks_are_dropped_and_what_waits_for_ever_too(
    troupe: Fleet, worker: Worker
) -> None:
    """All at once, since each copy waits until the original is known to be alive."""
    keys = {name: f"{name}-{uuid4().hex}" for name in ("late_retry", "late_wait")}
    results = {
        name: troupe.task(name, TASKS).apply_async((key, key), task_id=key)
        for name, key in keys.items()
    }
    for key in keys.values():
        troupe.stage.await_entry(key)
    deliver_again(troupe)
    for result in results.values():
        eventually(lambda result=result: dropped(worker, result), PATIENCE, f"{result} dropped")  # type: ignore[misc]
    for name, key in keys.items():
        assert len(troupe.stage.told(key, "enter")) == 1
        holder = zk_lock(key).holder()
        assert holder is not None
        assert holder.label == f"{TASKS}.{name}[{key}]"
        troupe.stage.let_go(key)
        assert results[name].get(timeout=PATIENCE) == key
    with Client.from_url(troupe.broker) as client:
        eventually(lambda: not client.hlen("unacked"), PATIENCE, "all acknowledged")
        assert not client.llen("celery")


def test_a_copy_whose_original_ends_while_it_waits_is_dropped_too(
    troupe: Fleet, worker: Worker, key: str
) -> None:
    result = troupe.task("late_retry", TASKS).apply_async((key, key), task_id=key)
    troupe.stage.await_entry(key)
    deliver_again(troupe)
    eventually(lambda: in_line(key) == 2, PATIENCE, "the task and its copy in line")
    troupe.stage.let_go(key)
    assert result.get(timeout=PATIENCE) == key
    eventually(lambda: dropped(worker, result), PATIENCE, "the copy dropped")
    assert len(troupe.stage.told(key, "enter")) == 1
    assert result.state == states.SUCCESS
    eventually(lambda: in_line(key) == 0, PATIENCE, "an empty line")


def test_a_copy_of_a_waiting_task_is_dropped(troupe: Fleet, worker: Worker, key: str) -> None:
    with held_elsewhere(key):
        result = troupe.task("late_wait", TASKS).apply_async((key, key), task_id=key)
        eventually(lambda: in_line(key) == 2, PATIENCE, "the task in line")
        deliver_again(troupe)
        eventually(lambda: in_line(key) == 3, PATIENCE, "its copy in line")
        eventually(lambda: dropped(worker, result), PATIENCE, "the copy dropped")
    troupe.stage.await_entry(key)
    troupe.stage.let_go(key)
    assert result.get(timeout=PATIENCE) == key
    assert len(troupe.stage.told(key, "enter")) == 1
    eventually(lambda: in_line(key) == 0, PATIENCE, "an empty line")


def test_a_copy_of_a_task_that_died_waiting_runs(troupe: Fleet, key: str) -> None:
    task = troupe.task("late_wait", TASKS)
    with held_elsewhere(key):
        result = task.apply_async((key, key), task_id=key)
        eventually(lambda: in_line(key) == 2, PATIENCE, "the task in line")
        waiting = zk_lock(key).participants()[1]
        assert waiting.pid is not None
        os.kill(waiting.pid, signal.SIGKILL)
        eventually(lambda: in_line(key) == 3, PATIENCE, "its second run in line")
        second = zk_lock(key).participants()[2]

        def waits_by_itself() -> bool:
            line = zk_lock(key).participants()
            return len(line) == 2 and line[1].path != second.path

        eventually(waits_by_itself, PATIENCE, "the second run waits by itself")
        assert result.state != states.FAILURE
    troupe.stage.await_entry(key)
    troupe.stage.let_go(key)
    assert result.get(timeout=PATIENCE) == key


def test_copies_of_dead_tasks_run_when_their_session_ends(troupe: Fleet) -> None:
    """Their messages come back at once, while the dead process still stands in line."""
    keys = {name: f"{name}-{uuid4().hex}" for name in ("late_retry", "late_wait")}
    results = [troupe.task(name, TASKS).delay(key, key) for name, key in keys.items()]
    for key in keys.values():
        os.kill(troupe.stage.await_entry(key).pid, signal.SIGKILL)
    for key, result in zip(keys.values(), results, strict=True):
        troupe.stage.await_entry(key, times=2, patience=PATIENCE)
        troupe.stage.let_go(key)
        assert result.get(timeout=PATIENCE) == key
        assert len(troupe.stage.told(key, "enter")) == 2


def test_a_killed_worker_loses_what_tries_unless_it_is_acknowledged_late(
    troupe: Fleet, key: str
) -> None:
    """Celery acknowledges when the pool takes a task (`Request.on_accepted`), before its lock."""
    with held_elsewhere(key):
        with troupe.worker("-Q", key) as doomed:
            names = "late_wait", "patient"
            late, early = (
                troupe.task(name, TASKS).apply_async((key, key), queue=key) for name in names
            )
            eventually(lambda: in_line(key) == 3, PATIENCE, "both tasks in line")
            os.killpg(doomed.process.pid, signal.SIGKILL)
        deliver_again(troupe)
    with troupe.worker("-Q", key):
        troupe.stage.await_entry(key)
        troupe.stage.let_go(key)
        assert late.get(timeout=PATIENCE) == key
    with Client.from_url(troupe.broker) as client:
        assert not client.llen(key)
        assert not client.hlen("unacked")
    assert early.state != states.SUCCESS


@pytest.mark.usefixtures("distlock_memory")
def test_who_shares_the_lock_shares_it_with_a_copy_at_once(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: Any) -> str:
        raise AssertionError("nobody asks whether the original has ended")

    monkeypatch.setattr(runs, "state_of", ask)
    ran: list[str] = []

    @app.task(shared=False)
    @zk_locked("<key>", mode="read", timeout=0)
    def read(key: str) -> None:
        ran.append(key)
        if len(ran) == 1:
            with Owner() as owner:
                info = {"exchange": "", "routing_key": "celery", "redelivered": True}
                assert owner.now(Traced, read, key, delivery_info=info).state == states.SUCCESS

    assert Traced(read, "7").state == states.SUCCESS
    assert ran == ["7", "7"]


@pytest.mark.parametrize(
    ("states_in_turn", "succeeded"),
    [
        (["PENDING", "SUCCESS"], True),
        (["PENDING", "STARTED", "FAILURE", "SUCCESS"], False),
        (["PENDING"], False),
    ],
)
def test_the_result_of_the_original_is_waited_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, states_in_turn: list[str], succeeded: bool
) -> None:
    """The lock is given back before the result is stored: two servers, and no order between."""
    monkeypatch.setattr(runs, "RESULT_SECONDS", 0.2)
    said = iter(states_in_turn)
    run: Any = object.__new__(runs.Run)
    run.request = SimpleNamespace(id="7")
    run.task = SimpleNamespace(
        ignore_result=False,
        backend=None,
        AsyncResult=lambda _: SimpleNamespace(state=next(said, "PENDING")),
    )
    assert run._has_succeeded() is succeeded
