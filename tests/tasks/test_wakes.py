"""``on_busy="queue"``: who gives the lock back wakes the first in line, wherever its message is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, states
from kombu.asynchronous import timer
from pytest_django import Settings

from distlock import zk_locked
from distlock.celery import wakes
from distlock.celery.wakes import Wakes
from distlock_chaos.ports import free_ports
from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import PATIENCE, Fleet, fleet
from tests.kit.engines import first_then_deep, tree_at
from tests.kit.helpers import eventually
from tests.kit.rabbitmq import RabbitMQ
from tests.kit.services import Redis
from tests.kit.tools import Tree
from tests.tasks.test_tickets import AGAIN, run, tickets_of
from tests.tasks.tools import QUEUES
from tests.testproject.elsewhere import held_elsewhere

pytestmark = pytest.mark.engines("zookeeper", "redis")


TASKS = "tests.testproject.locked_tasks"
#: A task that is put off comes again after 15 to 30 s, unless it is woken.
RETRY_AFTER = 60.0
SHORTEST_PAUSE = 15


@pytest.fixture(params=first_then_deep(["redis", "rabbitmq"]))
def troupe(
    request: pytest.FixtureRequest,
    *,
    zookeeper: ZooKeeper,
    redis: Redis,
    tmp_path: Path,
    settings: Settings,
) -> Iterator[Fleet]:
    """Workers whose tasks come again late, over either broker."""
    broker = redis.new_database()
    celery = {"result_backend": broker}
    if request.param == "rabbitmq":
        rabbitmq: RabbitMQ = request.getfixturevalue("rabbitmq")
        broker = rabbitmq.new_host()
    with fleet(zookeeper, tmp_path, broker, celery=celery, RETRY_AFTER=RETRY_AFTER) as one:
        settings.DISTLOCK = one.distlock
        yield one


def put_off(troupe: Fleet, task: Any, key: str, actors: list[str], *, before: int = 0) -> list[Any]:
    """Send tasks one after the other, each when the one before has its ticket.

    :param before: the number of tickets
    """
    results = []
    default = troupe.distlock["default"]
    with tree_at(default["HOSTS"], default["NAMESPACE"]) as tree:
        for actor in actors:
            results.append(task.delay(key, actor))
            eventually(lambda: len(tickets_of(tree, key)) == before + len(results), PATIENCE)
    return results


def test_a_release_wakes_the_first_in_line_and_so_on(troupe: Fleet, key: str) -> None:
    """The pauses are 15 s at least: whoever ran before, in order, was woken."""
    task = troupe.task("queue_at_once", TASKS)
    first = f"first-{key}"
    others = [str(number) for number in range(5)]
    with troupe.worker("--prefetch-multiplier=1"), troupe.worker():
        holder = task.delay(key, first)
        troupe.stage.await_entry(first)
        results = put_off(troupe, task, key, others)
        troupe.stage.let_go(first)
        assert holder.get(timeout=PATIENCE) == first
        assert [one.get(timeout=PATIENCE) for one in results] == others
    (left,) = troupe.stage.told(first, "leave")
    entries = troupe.stage.told(key, "enter")
    assert [line.facts[1] for line in entries] == [first, *others]
    assert (entries[-1].when - left.when) / 1e9 < SHORTEST_PAUSE


@pytest.mark.parametrize("how", first_then_deep(["revoked", "expired"]))
def test_a_task_that_never_runs_gives_its_place_to_the_next(
    troupe: Fleet, key: str, how: str
) -> None:
    """Its ticket would last for 30 s longer than its pause."""
    task = troupe.task("queue_at_once", TASKS)
    first = f"first-{key}"
    with troupe.worker() as worker:
        holder = task.delay(key, first)
        troupe.stage.await_entry(first)
        never = task.apply_async((key, "never"), expires=2 if how == "expired" else None)
        eventually(lambda: never.state == states.RETRY, PATIENCE, "the first one put off")
        (following,) = put_off(troupe, task, key, ["following"], before=1)
        if how == "revoked":
            never.revoke()
            eventually(lambda: f"revoked: {never.id}" in worker.log, PATIENCE)
        else:
            end = time.monotonic() + 2
            eventually(lambda: time.monotonic() > end, PATIENCE)
        troupe.stage.let_go(first)
        assert holder.get(timeout=PATIENCE) == first
        assert following.get(timeout=2 * PATIENCE) == "following"
    (left,) = troupe.stage.told(first, "leave")
    entries = troupe.stage.told(key, "enter")
    assert [line.facts[1] for line in entries] == [first, "following"]
    assert (entries[-1].when - left.when) / 1e9 < SHORTEST_PAUSE


def test_a_process_killed_before_it_wakes_the_next_loses_nobody(
    module_fleet: Fleet, settings: Settings, key: str
) -> None:
    """They come again when their pauses are over, and each runs once."""
    settings.DISTLOCK = module_fleet.distlock
    stage = module_fleet.stage
    first, others = f"first-{key}", [str(number) for number in range(3)]
    with module_fleet.worker():
        module_fleet.task("dies_before_it_wakes", TASKS).delay(key, first)
        entry = stage.await_entry(first)
        results = put_off(module_fleet, module_fleet.task("queue_at_once", TASKS), key, others)
        stage.let_go(first)
        assert [one.get(timeout=PATIENCE) for one in results] == others
    entries = stage.told(key, "enter")
    assert [line.facts[1] for line in entries] == others
    assert entry.pid not in {line.pid for line in entries}


# --- what is woken -------------------------------------------------------------------------------


def test_whoever_finds_the_lock_free_and_a_ticket_ahead_wakes_its_task(
    app: Celery, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that should have, was killed."""
    woken: list[str] = []
    monkeypatch.setattr(wakes, "wake", lambda _, task_id: woken.append(task_id))

    @app.task(shared=False)
    @zk_locked("feed:<feed_id>", on_busy="queue", timeout=0, busy_deadline=None)
    def refresh(feed_id: int, who: str) -> None:
        assert feed_id
        assert who

    with held_elsewhere("feed:7"):
        for who in "abc":
            run(refresh, who)
        run(refresh, "c", AGAIN)
        assert not woken
    run(refresh, "c", AGAIN)
    assert woken == ["a"]
    for who in "abc":
        run(refresh, who, AGAIN)
    # Once when the one before has the lock, and once when it gives it back.
    assert woken == ["a", "b", "b", "c", "c"]
    eventually(lambda: not tickets_of(tree))


def test_a_broker_that_is_away_does_not_fail_the_task(
    app: Celery, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    app.conf.broker_url = f"redis://127.0.0.1:{port}/0"
    app.conf.broker_transport_options = {"max_retries": 0}
    ticket: Any = SimpleNamespace(first=lambda: "the-id")
    wakes.wake_first(app, ticket)
    assert "could not be woken" in caplog.text


@pytest.mark.parametrize(
    ("broker", "kind", "pause"),
    [
        ("redis://", "classic", 2),
        ("amqp://", "classic", 2),
        *([("amqp://", "quorum", 0.5)] if "quorum" in QUEUES else []),
        ("memory://", "classic", 0.5),
    ],
)
def test_the_pause_is_longer_where_wakes_arrive(
    app: Celery, broker: str, kind: str, pause: float
) -> None:
    """Without them it decides when a task comes; with them it only keeps slots busy."""
    queue = {"exchange": "tasks", "queue_arguments": {"x-queue-type": kind}}
    app.conf.update(broker_url=broker, task_queues={"tasks": queue})
    assert wakes.pause_per_ticket(app) == pause


@pytest.fixture
def listening() -> Any:
    """A worker's step, its timer, and which requests have begun."""
    times = timer.Timer()  # type: ignore[no-untyped-call]
    step: Any = Wakes(SimpleNamespace(hub=None, conninfo=None, steps=[], timer=times))
    step.began = []
    return step


def receive(step: Any, task_id: str) -> None:
    """Do as a worker does with a message that has its time."""
    request = SimpleNamespace(id=task_id, eta="later")
    step._received(request)
    step._timer.call_after(1000, step.began.append, (request,))


def pass_time(step: Any) -> list[str]:
    """Run what is due, and return who began."""
    for _, entry in step._timer:
        if entry is None:
            break
        entry()
    return [request.id for request in step.began]


def test_a_woken_task_begins_once(listening: Any) -> None:
    for task_id in "ab":
        receive(listening, task_id)
    listening._begin("b", None)
    listening._begin("b", None)
    assert pass_time(listening) == ["b"]


def test_a_wake_that_overtakes_its_message_is_remembered_and_used_once(listening: Any) -> None:
    listening._begin("a", None)
    receive(listening, "a")
    assert pass_time(listening) == ["a"]
    receive(listening, "a")
    assert pass_time(listening) == ["a"]


@pytest.mark.parametrize("body", [{}, None, 7, ["a"]])
def test_anything_else_wakes_nobody(listening: Any, body: Any) -> None:
    receive(listening, "a")
    listening._begin(json.loads(json.dumps(body)), None)
    assert not pass_time(listening)
