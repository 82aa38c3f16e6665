"""``on_busy="queue"``: the first in line begins when its turn has come, wherever its message is."""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import Celery, states
from kombu.asynchronous import timer
from pytest_django import Settings

from distlock import zk_limited, zk_lock, zk_locked, zk_semaphore
from distlock.celery import put_off as delays
from distlock.celery import tickets, wakes
from distlock.celery.put_off import HEADER, ONCE
from distlock.celery.wakes import Wakes
from distlock.engine.errors import BadVersion, NotConnected
from distlock.inspection.tree import look
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import PATIENCE, Fleet, Worker, fleet
from tests.kit.engines import first_then_deep
from tests.kit.helpers import eventually
from tests.kit.rabbitmq import RabbitMQ
from tests.kit.services import Redis
from tests.kit.tools import Tree, within
from tests.tasks.test_put_off import published
from tests.tasks.test_tickets import AGAIN, end, refreshes, run, ticket_path, tickets_of
from tests.tasks.tools import QUEUES, tree_of
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


def put_off(
    troupe: Fleet, task: Any, key: str, actors: list[str], *, before: int = 0, **options: Any
) -> list[Any]:
    """Send tasks one after the other, each when the one before has its ticket.

    :param before: the number of tickets
    """
    results = []
    with tree_of(troupe) as tree:
        for actor in actors:
            results.append(task.apply_async((key, actor), **options))
            eventually(lambda: len(tickets_of(tree, key)) == before + len(results), PATIENCE)
    return results


def test_a_release_wakes_the_first_in_line_and_so_on(troupe: Fleet, key: str) -> None:
    """The messages stay in the main processes: no other process begins a task before its turn."""
    task = troupe.task("queue_at_once", TASKS)
    first = f"first-{key}"
    others = [str(number) for number in range(5)]
    with troupe.worker("--prefetch-multiplier=1") as one, troupe.worker() as other:
        holder = task.delay(key, first)
        troupe.stage.await_entry(first)
        results = put_off(troupe, task, key, others)
        (seen,) = look(key).locks
        assert (seen.holding, seen.tasks, seen.waiting) == (1, len(others), 0)
        troupe.stage.let_go(first)
        assert holder.get(timeout=PATIENCE) == first
        assert [one.get(timeout=PATIENCE) for one in results] == others
    (left,) = troupe.stage.told(first, "leave")
    entries = troupe.stage.told(key, "enter")
    assert [line.facts[1] for line in entries] == [first, *others]
    assert (entries[-1].when - left.when) / 1e9 < SHORTEST_PAUSE
    assert "Put off" not in one.log + other.log


@contextmanager
def linked_worker(troupe: Fleet) -> Iterator[tuple[TcpProxy, Worker]]:
    """A worker, and its link to the broker.

    One of Celery 5.7 ends if it loses the connection for remote control first.
    """
    port = urlsplit(troupe.broker).port or 0
    with TcpProxy("127.0.0.1", port) as link:
        url = troupe.broker.replace(f":{port}", f":{link.port}")
        celery = {"broker_url": url, "worker_enable_remote_control": False}
        with troupe.worker("--queues=celery,linked", celery=celery) as worker:
            yield link, worker


def test_what_waits_in_a_worker_comes_back_after_the_broker_was_away(
    troupe: Fleet, key: str
) -> None:
    """Redis would keep the messages for the visibility timeout, an hour."""
    task = troupe.task("queue_at_once", TASKS)
    names = [str(number) for number in range(3)]
    with linked_worker(troupe) as (link, worker):
        with zk_lock(key):
            results = put_off(troupe, task, key, names)
            link.cut()
            eventually(lambda: "Trying again" in worker.log, PATIENCE)
            link.pass_through()
        assert [one.get(timeout=PATIENCE) for one in results] == names
    assert [line.facts[1] for line in troupe.stage.told(key, "enter")] == names


def test_what_another_worker_has_got_after_an_outage_stays_there(troupe: Fleet, key: str) -> None:
    task = troupe.task("queue_for_two", TASKS)
    names = [str(number) for number in range(8)]
    with ExitStack() as stack, linked_worker(troupe) as (link, _):
        with zk_semaphore(key, 2), zk_semaphore(key, 2):
            results = put_off(troupe, task, key, names)
            stack.enter_context(troupe.worker())
            link.drop()
            task.apply_async((f"other-{key}", "linked"), queue="linked").get(timeout=PATIENCE)
        for result in results:
            result.get(timeout=PATIENCE)
        with tree_of(troupe) as tree:  # a copy would have one
            eventually(lambda: not tickets_of(tree, key), PATIENCE)
        task.delay(key, "last").get(timeout=PATIENCE)
    entries = troupe.stage.told(key, "enter")
    assert sorted(line.facts[1] for line in entries) == [*names, "last"]


def test_a_worker_grows_for_what_has_waited(troupe: Fleet, key: str) -> None:
    """Celery asks for more processes when it receives a task without a time, and each 30 s."""
    task = troupe.task("queue_at_once", TASKS)
    names = [f"first-{number}-{key}" for number in range(4)]
    with troupe.worker("--autoscale=4,1"):
        results = [task.delay(name, name) for name in names]
        for name in names:
            troupe.stage.await_entry(name, patience=SHORTEST_PAUSE)
        for name in names:
            troupe.stage.let_go(name)
        for result in results:
            result.get(timeout=PATIENCE)


def test_a_flood_is_fetched_at_once(troupe: Fleet, key: str) -> None:
    """Celery would fetch one message a second, for each process that it has."""
    task = troupe.task("queue_at_once", TASKS)
    names = [str(number) for number in range(60)]
    with troupe.worker("--prefetch-multiplier=1", concurrency=1), tree_of(troupe) as tree:
        with zk_lock(key):
            results = [task.delay(key, name) for name in names]
            eventually(lambda: len(tickets_of(tree, key)) == len(names), SHORTEST_PAUSE)
        assert [one.get(timeout=PATIENCE) for one in results] == names
    entries = troupe.stage.told(key, "enter")
    assert [line.facts[1] for line in entries] == names


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
        never = put_off(troupe, task, key, ["never"], expires=2 if how == "expired" else None)[0]
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


@pytest.mark.parametrize("name", ["queue_at_once", "queue_for_two"])
def test_the_death_of_a_woken_task_wakes_the_next(troupe: Fleet, key: str, name: str) -> None:
    """Its message was acknowledged, so its ticket would last for a minute and a half."""
    task = troupe.task(name, TASKS)
    numbers = range(2 if name == "queue_for_two" else 1)
    holders, dying = ([f"{what}-{n}" for n in numbers] for what in ("first", "dies"))
    with troupe.worker():
        for holder in holders:
            task.delay(key, holder)
        for holder in holders:
            troupe.stage.await_entry(holder)
        *_, following = put_off(troupe, task, key, [*dying, "next"])
        for holder in holders:
            troupe.stage.let_go(holder)
        assert following.get(timeout=SHORTEST_PAUSE) == "next"
    assert all(troupe.stage.told(actor, "dies") for actor in dying)


def make_busy(troupe: Fleet, key: str, stack: ExitStack) -> Any:
    """Use the worker's only process, start another worker, and let what waits settle."""
    busy = troupe.task("late_retry", TASKS).delay(key, "busy")
    troupe.stage.await_entry("busy")
    stack.enter_context(troupe.worker(concurrency=1))
    settled = time.monotonic() + wakes.SETTLED  # a fast worker serves before
    eventually(lambda: time.monotonic() > settled, PATIENCE)
    return busy


@pytest.mark.parametrize("troupe", ["rabbitmq"], indirect=True)
def test_a_woken_task_leaves_a_worker_whose_processes_are_busy(troupe: Fleet, key: str) -> None:
    """It would wait for one of them, and those behind it for its turn."""
    with troupe.worker(concurrency=1), ExitStack() as stack:
        with zk_lock(key):
            (waits,) = put_off(troupe, troupe.task("queue_at_once", TASKS), key, ["waits"])
            busy = make_busy(troupe, f"other-{key}", stack)
        assert waits.get(timeout=SHORTEST_PAUSE) == "waits"
        troupe.stage.let_go("busy")
        assert busy.get(timeout=PATIENCE) == "busy"


@pytest.mark.parametrize("troupe", ["redis"], indirect=True)
def test_some_leave_a_busy_worker_by_redis(troupe: Fleet, key: str) -> None:
    """Each goes to one of the two workers, at random."""
    keys = [f"{key}-{number}" for number in range(12)]
    with troupe.worker(concurrency=1), ExitStack() as stack:
        with ExitStack() as locks:
            for one in keys:
                locks.enter_context(zk_lock(one))
            task = troupe.task("queue_at_once", TASKS)
            results = [put_off(troupe, task, one, ["waits"])[0] for one in keys]
            busy = make_busy(troupe, f"other-{key}", stack)
        eventually(lambda: any(one.ready() for one in results), SHORTEST_PAUSE, "one that left")
        troupe.stage.let_go("busy")
        for one in (busy, *results):
            assert one.get(timeout=PATIENCE)


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
        ("redis://", "classic", 30),
        ("amqp://", "classic", 30),
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
    assert delays.longest_pause(app, 0, 1.0) == pause


class Request(SimpleNamespace):
    """What a worker makes of a message."""

    message = SimpleNamespace(channel=None, delivery_tag="tag")


class MainProcess:
    """A worker's step, its timer, and who has begun."""

    def __init__(self) -> None:
        self.timer = timer.Timer()  # type: ignore[no-untyped-call]
        pool = SimpleNamespace(num_processes=1)
        connection = SimpleNamespace(transport=SimpleNamespace(driver_type="redis"))
        self.qos = SimpleNamespace(value=1, max_prefetch=None)
        self.step: Any = Wakes(
            SimpleNamespace(
                hub=None,
                steps=[],
                timer=self.timer,
                pool=pool,
                connection=connection,
                qos=self.qos,
                on_task_message=set(),
            )
        )
        self.began: list[str] = []

    def receive(self, task_id: str, header: Any) -> None:
        """Do as a worker does with a message that has its time."""
        request = Request(id=task_id, request_dict={HEADER: header}, eta="later")
        self.step._received(request)
        self.timer.call_after(1000, self._begin, (request,))  # type: ignore[no-untyped-call]

    def fetch(self, task: Any, who: str, **more: Any) -> Any:
        """Do so with a message that has none; return the request."""
        delivery = {"redelivered": more.pop("redelivered", False)}
        facts: dict[str, Any] = {
            "eta": None,
            "_eta": None,
            "args": (7, who),
            "kwargs": {},
            "request_dict": {},
        }
        facts.update(id=who, task=task, app=task.app, delivery_info=delivery, **more)
        request = Request(**facts)
        self.step._received(request)
        self.timer.call_after(1000, self._begin, (request,))  # type: ignore[no-untyped-call]
        return request

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


def test_one_whose_process_was_killed_after_its_wake_begins_at_once(
    refresh: Any, tree: Tree, main_process: MainProcess
) -> None:
    """The broker delivers the message again, with the time before which it was woken."""
    with held_elsewhere("feed:7"), published() as messages:
        assert run(refresh, "a").state == states.RETRY
    assert run(refresh, "a", AGAIN).state == states.SUCCESS
    eventually(lambda: not tickets_of(tree))
    main_process.receive("a", messages[0][HEADER])
    eventually(lambda: main_process.has_begun("a"), PATIENCE, "begun")


def test_one_whose_ticket_is_gone_begins_to_draw_another_and_holds_nobody_up(
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
        eventually(lambda: main_process.has_begun("a", "b"), PATIENCE, "both begun")
        assert run(refresh, "b", AGAIN).state == states.SUCCESS
        eventually(nothing_is_kept, PATIENCE, "nothing kept for a key that nobody waits for")


@pytest.mark.parametrize("header", [None, {}, {"turn": None}, {"turn": []}, {"turn": ["?"]}])
def test_another_message_waits_for_its_time(main_process: MainProcess, header: Any) -> None:
    main_process.receive("a", header)
    assert main_process.has_begun()
    assert not main_process.step._lines


def test_a_ticket_lasts_as_long_as_its_message_waits_and_no_longer(
    refresh: Any, tree: Tree, main_process: MainProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakes, "TTL", 0.3)
    with held_elsewhere("feed:7"):
        run(refresh, "lost")
        main_process.fetch(refresh, "a")
        eventually(lambda: tickets_of(tree) == ["lost", "a"])
        path = ticket_path(tree, "a")
        eventually(lambda: tree.client.get(path)[1].version > 1, PATIENCE, "renewed twice")
        end(tree, "lost")
        eventually(lambda: tickets_of(tree) == ["a"], PATIENCE, "the end of the other one")
    eventually(lambda: main_process.has_begun("a"), PATIENCE, "begun")
    assert run(refresh, "a").state == states.SUCCESS
    eventually(lambda: not tickets_of(tree))


def test_the_tickets_of_a_killed_worker_between_living_ones_hold_nobody_up(
    refresh: Any, tree: Tree, main_process: MainProcess
) -> None:
    """They are not found one by one, each when the tickets are renewed: every 30 s."""
    line = ["lost1", "a", "lost2", "b"]
    with held_elsewhere("feed:7"):
        for number in (1, 3):
            run(refresh, line[number - 1])
            main_process.fetch(refresh, line[number])
            eventually(lambda: tickets_of(tree)[-1] in "ab")
        assert tickets_of(tree) == line
        for lost in ("lost1", "lost2"):
            end(tree, lost)
        for one in main_process.step._lines.values():
            one._renew()
        eventually(lambda: tickets_of(tree) == line[1:])
    eventually(lambda: main_process.has_begun("a"), PATIENCE, "begun")
    with within(20):
        assert run(refresh, "a").state == states.SUCCESS
        eventually(lambda: main_process.has_begun("a", "b"), PATIENCE, "the second one begun")
    assert run(refresh, "b").state == states.SUCCESS


def test_one_that_is_overtaken_in_its_turn_keeps_its_place(
    refresh: Any, tree: Tree, main_process: MainProcess
) -> None:
    with held_elsewhere("feed:7"):
        first, second = (main_process.fetch(refresh, who) for who in "ab")
        eventually(lambda: tickets_of(tree) == ["a", "b"])
    eventually(lambda: main_process.has_begun("a"), PATIENCE, "begun")
    with held_elsewhere("feed:7"), published() as messages:  # by a view, for example
        assert run(refresh, "a", first.request_dict).state == states.RETRY
        assert tickets_of(tree) == ["a", "b"]
    main_process.receive("a", messages[0][HEADER])
    eventually(lambda: main_process.has_begun("a", "a"), PATIENCE, "begun again")
    assert run(refresh, "a", AGAIN).state == states.SUCCESS
    eventually(lambda: main_process.has_begun("a", "a", "b"), PATIENCE, "the second one begun")
    assert run(refresh, "b", second.request_dict).state == states.SUCCESS
    eventually(lambda: not tickets_of(tree))


def test_a_ticket_whose_reply_was_lost_is_the_tasks_only_one(
    refresh: Any, tree: Tree, main_process: MainProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_for()
    create = session.create_persistent

    def lose_the_reply(path: str, data: bytes, done: Any, **how: Any) -> None:
        monkeypatch.setattr(session, "create_persistent", create)
        create(path, data, lambda _value, error: done(None, error or NotConnected()), **how)

    with held_elsewhere("feed:7"):
        run(refresh, "other")  # which makes the parents
        monkeypatch.setattr(session, "create_persistent", lose_the_reply)
        main_process.fetch(refresh, "a")
        main_process.fetch(refresh, "b")
        eventually(lambda: tickets_of(tree) == ["other", "a", "b"])
        assert main_process.has_begun()
    for who in ("other", "a", "b"):
        assert run(refresh, who, AGAIN).state == states.SUCCESS
    eventually(lambda: not tickets_of(tree))


@pytest.mark.usefixtures("tree")
def test_one_that_can_draw_no_ticket_begins(
    refresh: Any, main_process: MainProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*asked: Any, **_: Any) -> None:
        asked[-1](None, BadVersion())

    monkeypatch.setattr(session_for(), "create_persistent", refuse)
    main_process.fetch(refresh, "a")
    eventually(lambda: main_process.has_begun("a"), PATIENCE, "begun")


@pytest.mark.usefixtures("tree")
def test_a_retry_of_one_that_was_delayed_waits_for_its_time(
    app: Celery, main_process: MainProcess
) -> None:
    @app.task(shared=False, bind=True)
    @zk_locked("feed:<feed_id>", on_busy="queue")
    def refresh(self: Any, feed_id: int, who: str) -> None:
        raise self.retry((feed_id, who), countdown=60)

    with published() as messages:
        with held_elsewhere("feed:7"):
            assert run(refresh, "a").state == states.RETRY
        assert run(refresh, "a", {HEADER: messages[0][HEADER]}).state == states.RETRY
        first = {HEADER: {"busy": 0, "away": 0, "since": 1, "tickets": ["/nowhere/a-0"]}}
        assert run(refresh, "a", first).state == states.RETRY
    main_process.receive("a", messages[1][HEADER])
    assert not main_process.step._lines
    assert HEADER not in messages[2]


def test_one_that_never_calls_its_function_gives_its_place_back(
    app: Celery, tree: Tree, main_process: MainProcess
) -> None:
    class Base(app.Task):  # type: ignore[misc]
        @zk_locked("feed:<feed_id>", on_busy="queue")
        def run(self, feed_id: int, who: str) -> None: ...

    class Sometimes(Base):
        name = "sometimes"

        def run(self, feed_id: int, who: str) -> None:
            if who != "a":
                super().run(feed_id, who)

    sometimes = app.register_task(Sometimes())
    with held_elsewhere("feed:7"):
        request = main_process.fetch(sometimes, "a")
        eventually(lambda: tickets_of(tree) == ["a"])
    eventually(lambda: main_process.has_begun("a"), PATIENCE, "begun")
    assert run(sometimes, "a", request.request_dict).state == states.SUCCESS
    eventually(lambda: not tickets_of(tree))


def test_a_line_goes_on_after_the_broker_was_away(
    refresh: Any, tree: Tree, main_process: MainProcess
) -> None:
    """What was watched for the forgotten ones fires while there is none."""
    with held_elsewhere("feed:7"):
        main_process.fetch(refresh, "a")
        eventually(lambda: tickets_of(tree) == ["a"])
        eventually(lambda: session_for().watches.watchers, PATIENCE, "a watch")
        main_process.step.stop(None)
    eventually(lambda: not session_for().watches.watchers, PATIENCE, "the watch used up")
    with held_elsewhere("feed:7"):
        main_process.fetch(refresh, "b")
        eventually(lambda: tickets_of(tree) == ["a", "b"])
        assert main_process.has_begun()
    tree.client.delete(ticket_path(tree, "a"))  # of a task that another worker has got
    eventually(lambda: main_process.has_begun("b"), PATIENCE, "begun")
    assert run(refresh, "b").state == states.SUCCESS


def test_a_line_goes_on_whose_messages_were_forgotten_during_a_look(
    refresh: Any, tree: Tree, main_process: MainProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = tickets.room_for, []

    def room_for(*arguments: Any) -> Any:
        room = yield from real(*arguments)
        looks.append(room)
        for line in main_process.step._lines.values():
            line._forget()
        return room

    with held_elsewhere("feed:7"):
        with monkeypatch.context() as patched:
            patched.setattr(wakes, "room_for", room_for)
            forgotten = main_process.fetch(refresh, "a")
            eventually(lambda: looks, PATIENCE, "a look")
        tree.client.delete(ticket_path(tree, "a"))  # of a task that another worker has got
        main_process.fetch(refresh, "b")
        eventually(lambda: tickets_of(tree) == ["b"])
    eventually(lambda: main_process.has_begun("b"), PATIENCE, "begun")
    assert run(refresh, "b").state == states.SUCCESS
    assert forgotten.distlock_lines  # which has kept the line


def test_those_ahead_may_leave_in_any_order(
    app: Celery, tree: Tree, main_process: MainProcess
) -> None:
    @app.task(shared=False)
    @zk_limited("feed:<feed_id>", 2, on_busy="queue")
    def refresh(feed_id: int, who: str) -> str:
        return f"{feed_id} {who}"

    with zk_semaphore("feed:7", 2), zk_semaphore("feed:7", 2):
        for who in ("stuck", "leaves"):
            assert run(refresh, who).state == states.RETRY
        main_process.fetch(refresh, "a")
        eventually(lambda: tickets_of(tree) == ["stuck", "leaves", "a"])
    eventually(lambda: session_for().watches.watchers, PATIENCE, "a watch")
    assert main_process.has_begun()
    tree.client.delete(ticket_path(tree, "leaves", of="@permits"))
    eventually(lambda: main_process.has_begun("a"), PATIENCE, "begun")
    for who in ("a", "stuck"):
        assert run(refresh, who, AGAIN).state == states.SUCCESS


def test_one_that_the_broker_delivers_again_elsewhere_does_not_begin_here(
    refresh: Any, tree: Tree, main_process: MainProcess
) -> None:
    """Celery cancels what waits in its timer when it loses its connection."""
    with held_elsewhere("feed:7"):
        main_process.fetch(refresh, "a")
        eventually(lambda: tickets_of(tree) == ["a"])
        main_process.timer.queue[0][2].cancel()
    eventually(lambda: main_process.step._due, PATIENCE, "its turn")
    assert main_process.has_begun()
    assert run(refresh, "a").state == states.SUCCESS


@pytest.mark.usefixtures("tree")
def test_one_that_may_be_a_copy_is_left_to_its_run(
    app: Celery, refresh: Any, main_process: MainProcess
) -> None:
    @app.task(shared=False, name="shares")
    @zk_limited("feed:<feed_id>", 2, on_busy="queue")
    def shares(feed_id: int, who: str) -> None: ...

    assert main_process.fetch(refresh, "a", redelivered=True)._eta is None
    assert main_process.fetch(shares, "b", redelivered=True)._eta is not None


@pytest.mark.usefixtures("tree")
def test_a_repeated_run_does_not_begin_with_the_tickets_of_the_one_that_died(
    main_process: MainProcess,
) -> None:
    """Celery's `retry_on_worker_lost` copies the header, as it was in the main process."""
    header = {"busy": 0, "away": 0, "since": 1, "tickets": ["/nowhere/a-0"]}
    main_process.receive("a", header)
    assert "tickets" not in header
    assert not main_process.step._lines
    main_process.receive("b", "not ours")


def test_only_what_kombu_could_not_give_back_is_given_back_and_once(
    refresh: Any, tree: Tree, main_process: MainProcess
) -> None:
    back: list[str] = []
    qos = SimpleNamespace(_delivered={"b": None}, restore_by_tag=back.append)
    channel = SimpleNamespace(qos=qos)
    consumer = SimpleNamespace(task_consumer=SimpleNamespace(channel=channel))
    hub = SimpleNamespace(add_reader=lambda *_: None)
    with held_elsewhere("feed:7"):
        for who in ("a", "b"):
            message = SimpleNamespace(channel=channel, delivery_tag=who)
            main_process.fetch(refresh, who, message=message)
        eventually(lambda: len(tickets_of(tree)) == 2)
        for _ in range(2):
            main_process.timer.clear()  # type: ignore[no-untyped-call]  # as Celery does before 5.7
            main_process.step.stop(None)
            main_process.step.register_with_event_loop(consumer, hub)
    assert back == ["b"]
    assert not main_process.timer.queue
    for who in ("a", "b"):
        tree.client.delete(ticket_path(tree, who))


@pytest.mark.usefixtures("tree")
def test_no_more_are_kept_than_the_worker_may_fetch(
    refresh: Any, main_process: MainProcess
) -> None:
    """Celery would take more from its limit when they begin than it had added."""
    main_process.qos.max_prefetch = 2  # `worker_eta_task_limit`
    with held_elsewhere("feed:7"):
        assert main_process.fetch(refresh, "a")._eta is not None
        main_process.qos.value = 2
        assert main_process.fetch(refresh, "b")._eta is None


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("headers", "options", "seconds"),
    [
        ({}, {}, 900),
        ({}, {"busy_deadline": 10}, 10),
        (AGAIN, {"busy_deadline": 10}, 0),
        ({ONCE: {"ttl": 10}}, {}, 5),
    ],
    ids=["by-rabbitmq", "until-deadline", "late", "while-queued-once"],
)
def test_a_message_is_kept_no_longer_than_is_good_for_it(
    app: Celery, main_process: MainProcess, headers: Any, options: Any, seconds: float
) -> None:
    app.conf.broker_url = "amqp://"
    refresh = refreshes(app, **options)
    with held_elsewhere("feed:7"):
        eta = main_process.fetch(refresh, "a", request_dict=headers.copy())._eta
    assert seconds - 5 < (eta - datetime.now(timezone.utc)).total_seconds() <= seconds


def tenant() -> str:
    """Return a KEY_PREFIX, which only the task's process knows."""
    return "tenant1"


def test_what_only_the_tasks_process_knows_it_is_asked_for(
    app: Celery, main_process: MainProcess, settings: Settings
) -> None:
    @app.task(shared=False, name="each_its_own")
    @zk_limited("feed:<feed_id>", lambda feed_id, who: 3 + feed_id + len(who), on_busy="queue")
    def each_its_own(feed_id: int, who: str) -> None: ...

    @app.task(shared=False, name="of_a_tenant")
    @zk_locked("feed:<feed_id>", on_busy="queue", using="tenants")
    def of_a_tenant(feed_id: int, who: str) -> None: ...

    prefix = f"{__name__}.tenant"
    tenants = {**settings.DISTLOCK["default"], "KEY_PREFIX": prefix}
    settings.DISTLOCK = {**settings.DISTLOCK, "tenants": tenants}
    for task in (each_its_own, of_a_tenant):
        assert main_process.fetch(task, "a")._eta is None
    assert main_process.fetch(refreshes(app), "a", args=("too few",))._eta is None
