"""``on_busy="queue"``: the first in line begins when its turn has come, wherever its message is."""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, states
from kombu.asynchronous import timer
from pytest_django import Settings

from distlock import zk_limited, zk_semaphore
from distlock.celery import tickets, wakes
from distlock.celery.put_off import HEADER
from distlock.celery.wakes import Wakes
from distlock.engine.errors import NotConnected
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import PATIENCE, Fleet, fleet
from tests.kit.engines import first_then_deep, tree_at
from tests.kit.helpers import eventually
from tests.kit.rabbitmq import RabbitMQ
from tests.kit.services import Redis
from tests.kit.tools import Tree
from tests.tasks.test_put_off import published
from tests.tasks.test_tickets import AGAIN, refreshes, run, ticket_path, tickets_of
from tests.tasks.tools import QUEUES
from tests.testproject.elsewhere import held_elsewhere

pytestmark = pytest.mark.engines("zookeeper", "redis")


TASKS = "tests.testproject.locked_tasks"
#: A task that is put off comes again after 15 to 30 s, unless it is woken.
RETRY_AFTER = 60.0
SHORTEST_PAUSE = 15
SESSION_SECONDS = 10


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
    with fleet(
        zookeeper,
        tmp_path,
        broker,
        celery=celery,
        RETRY_AFTER=RETRY_AFTER,
        SESSION_TIMEOUT=SESSION_SECONDS,
    ) as one:
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


@pytest.mark.parametrize("name", ["queue_at_once", "queue_for_two"])
def test_the_death_of_a_holder_wakes_the_first_in_line(troupe: Fleet, key: str, name: str) -> None:
    task = troupe.task(name, TASKS)
    holders = [f"first-{n}-{key}" for n in range(2 if name == "queue_for_two" else 1)]
    with troupe.worker(), troupe.worker():
        for holder in holders:
            task.delay(key, holder)
        entries = [troupe.stage.await_entry(holder) for holder in holders]
        results = put_off(troupe, task, key, ["a", "b"])
        killed = time.monotonic_ns()
        os.kill(entries[0].pid, signal.SIGKILL)
        assert [one.get(timeout=PATIENCE) for one in results] == ["a", "b"]
        for holder in holders[1:]:
            troupe.stage.let_go(holder)
    after = [line for line in troupe.stage.told(key, "enter") if line.facts[1] in ("a", "b")]
    assert [line.facts[1] for line in after] == ["a", "b"]
    assert (after[0].when - killed) / 1e9 < SESSION_SECONDS / 2


def test_a_raised_limit_wakes_as_many_as_it_lets_in(troupe: Fleet, key: str) -> None:
    task = troupe.task("queue_for_two", TASKS)
    holders = [f"first-{n}-{key}" for n in range(5)]
    with troupe.worker(concurrency=6):
        for holder in holders[:2]:
            task.delay(key, holder)
            troupe.stage.await_entry(holder)
        put_off(troupe, task, key, holders[2:])
        zk_semaphore(key, 2).limit = 4
        for holder in holders[2:4]:
            troupe.stage.await_entry(holder)
        assert not troupe.stage.told(holders[4], "enter")
        for holder in holders:
            troupe.stage.let_go(holder)
        troupe.stage.await_entry(holders[4])
    entries = troupe.stage.told(key, "enter")
    assert (entries[-1].when - entries[0].when) / 1e9 < SHORTEST_PAUSE


# --- one worker's main process -------------------------------------------------------------------


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


class MainProcess:
    """A worker's step, its timer, and who has begun."""

    def __init__(self) -> None:
        self.timer = timer.Timer()  # type: ignore[no-untyped-call]
        self.step: Any = Wakes(SimpleNamespace(hub=None, steps=[], timer=self.timer))
        self.began: list[str] = []

    def receive(self, task_id: str, header: Any) -> None:
        """Do as a worker does with a message that has its time."""
        request = SimpleNamespace(id=task_id, request_dict={HEADER: header})
        self.step._received(request)
        self.timer.call_after(1000, self._begin, (request,))  # type: ignore[no-untyped-call]

    def _begin(self, request: Any) -> None:
        self.began.append(request.id)

    def has_begun(self, *task_ids: str) -> bool:
        """Begin what is due, and return whether these have begun."""
        if select.select([self.step._reading], [], [], 0)[0]:
            self.step._begin_due()
        return self.began == list(task_ids)


@pytest.fixture
def main_process() -> Iterator[MainProcess]:
    one = MainProcess()
    yield one
    os.close(one.step._reading)
    os.close(one.step._writing)


@pytest.fixture
def refresh(app: Celery) -> Any:
    return refreshes(app)


def delayed(refresh: Any, main_process: MainProcess, *actors: str) -> None:
    """Let tasks find the lock busy, and the worker receive their messages."""
    for who in actors:
        with published() as messages:
            assert run(refresh, who).state == states.RETRY
        main_process.receive(who, messages[0][HEADER])


def test_one_begins_when_the_one_before_has_come_and_gone(
    refresh: Any, tree: Tree, main_process: MainProcess
) -> None:
    with held_elsewhere("feed:7"):
        run(refresh, "a")  # whose message another worker has
        delayed(refresh, main_process, "b")
    assert main_process.has_begun()
    assert run(refresh, "a", AGAIN).state == states.SUCCESS
    eventually(lambda: main_process.has_begun("b"), PATIENCE, "the second one begun")
    assert run(refresh, "b", AGAIN).state == states.SUCCESS
    eventually(lambda: not tickets_of(tree))


def test_a_new_connection_watches_again(
    refresh: Any, tree: Tree, main_process: MainProcess
) -> None:
    session: Any = session_for()
    with held_elsewhere("feed:7"):
        delayed(refresh, main_process, "a")
        eventually(lambda: session.watches.watchers, PATIENCE, "a watch")
        before = session.connection
        session._client.drop()
        eventually(lambda: session.connected and session.connection > before, PATIENCE)
    eventually(lambda: main_process.has_begun("a"), PATIENCE, "begun")
    assert run(refresh, "a", AGAIN).state == states.SUCCESS
    eventually(lambda: not tickets_of(tree))


def test_a_connection_that_is_lost_in_the_middle_of_a_look_costs_no_wake(
    refresh: Any, tree: Tree, main_process: MainProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = threading.Event()

    def lose(*_: object) -> None:
        monkeypatch.setattr(wakes, "line_at", tickets.line_at)
        lost.set()
        raise NotConnected

    monkeypatch.setattr(wakes, "line_at", lose)
    with held_elsewhere("feed:7"):
        delayed(refresh, main_process, "a")
        assert lost.wait(PATIENCE)
    eventually(lambda: main_process.has_begun("a"), PATIENCE, "begun")
    assert run(refresh, "a", AGAIN).state == states.SUCCESS
    eventually(lambda: not tickets_of(tree))


def test_a_ticket_that_is_gone_holds_nobody_up(
    app: Celery, tree: Tree, main_process: MainProcess
) -> None:
    @app.task(shared=False)
    @zk_limited("feed:<feed_id>", 2, on_busy="queue")
    def refresh(feed_id: int, who: str) -> str:
        return f"{feed_id} {who}"

    def nothing_is_kept() -> bool:
        gc.collect()
        return not main_process.step._lines

    with zk_semaphore("feed:7", 2):
        with zk_semaphore("feed:7", 2):
            delayed(refresh, main_process, "a", "b")
            tree.client.delete(ticket_path(tree, "a", of="@permits"))
        eventually(lambda: main_process.has_begun("b"), PATIENCE, "the second one begun")
        assert run(refresh, "b", AGAIN).state == states.SUCCESS
        eventually(nothing_is_kept, PATIENCE, "nothing kept for a key that nobody waits for")


@pytest.mark.parametrize("header", [None, {}, {"turn": None}, {"turn": []}, {"turn": ["?"]}])
def test_another_message_waits_for_its_time(main_process: MainProcess, header: Any) -> None:
    main_process.receive("a", header)
    assert main_process.has_begun()
    assert not main_process.step._lines
