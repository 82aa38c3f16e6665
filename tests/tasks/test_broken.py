"""Tasks when ZooKeeper or the broker is away: never without the lock, and never lost in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from celery import Celery, states
from celery.signals import before_task_publish
from kombu.exceptions import EncodeError
from pytest_django import Settings

from distlock import LockBusy, LockUnavailable, zk_lock, zk_locked
from distlock.celery.put_off import HEADER
from distlock.celery.runs import MAX_PAUSE
from distlock.owner.owner import current
from distlock.session.registry import close_sessions
from distlock_chaos.ports import free_ports
from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import PATIENCE, fleet
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.tasks.tools import Traced
from tests.testproject.elsewhere import held_elsewhere

TASKS = "tests.testproject.locked_tasks"


@pytest.fixture
def zookeeper_is_away(settings: Settings) -> None:
    (port,) = free_ports(1)
    alias = {"HOSTS": f"127.0.0.1:{port}", "CONNECT_TIMEOUT": 0.2, "TIMEOUT": 0.2}
    settings.DISTLOCK = {"default": alias}


def refreshes(app: Celery, on_busy: Any, **options: Any) -> Any:
    ran: list[object] = []

    @app.task(shared=False)
    @zk_locked("feed:<feed_id>", on_busy=on_busy, **options)
    def refresh(feed_id: object) -> None:
        ran.append(feed_id)

    refresh.ran = ran
    return refresh


@pytest.mark.usefixtures("zookeeper_is_away")
@pytest.mark.parametrize("on_busy", [None, "retry", "queue", "wait", "skip", lambda *_: "without"])
def test_a_task_is_put_off_while_zookeeper_is_away(app: Celery, on_busy: Any) -> None:
    refresh = refreshes(app, on_busy)
    run = Traced(refresh, 7)
    assert run.state == states.RETRY
    assert isinstance(run.error.exc, LockUnavailable)
    record = run.error.sig.options["headers"][HEADER]
    assert (record["busy"], record["away"]) == (0, 1)
    assert run.error.sig.options["retries"] == 0
    assert refresh.ran == []


@pytest.mark.usefixtures("zookeeper_is_away")
def test_a_task_that_proceeds_runs_while_zookeeper_is_away(app: Celery) -> None:
    refresh = refreshes(app, None, on_unavailable="proceed")
    assert Traced(refresh, 7).state == states.SUCCESS
    assert refresh.ran == [7]


@pytest.mark.usefixtures("zookeeper_is_away")
def test_a_task_that_is_to_raise_fails_while_zookeeper_is_away(app: Celery) -> None:
    refresh = refreshes(app, "raise")
    run = Traced(refresh, 7)
    assert (run.state, type(run.error)) == (states.FAILURE, LockUnavailable)
    assert refresh.ran == []


@pytest.mark.usefixtures("zookeeper_is_away")
def test_past_its_deadline_it_fails_with_what_is_wrong(app: Celery) -> None:
    refresh = refreshes(app, "retry", busy_deadline=60)
    record = {"busy": 0, "away": 5, "since": 1}
    run = Traced(refresh, 7, headers={HEADER: record})
    assert (run.state, type(run.error)) == (states.FAILURE, LockUnavailable)


@pytest.mark.usefixtures("distlock_settings")
def test_nothing_is_held_when_the_message_is_sent(app: Celery) -> None:
    """With two locks: the inner one is busy, the outer one has to go first."""
    held: list[list[str]] = []

    def look(**_: Any) -> None:
        held.append([key for _, key in current().held])

    @app.task(shared=False)
    @zk_locked("outer")
    @zk_locked("feed:<feed_id>")
    def refresh(feed_id: int) -> None: ...

    before_task_publish.connect(look)
    try:
        with held_elsewhere("feed:7"):
            assert Traced(refresh, 7).state == states.RETRY
    finally:
        before_task_publish.disconnect(look)
    assert held == [[]]


@pytest.mark.usefixtures("distlock_settings")
def test_arguments_that_cannot_be_sent_again_fail_with_that_error(app: Celery) -> None:
    """A publisher's own ``serializer="pickle"`` is not known to the worker."""

    class Feed:
        def __str__(self) -> str:
            return "7"

    refresh = refreshes(app, "retry")
    with held_elsewhere("feed:7"):
        run = Traced(refresh, Feed())
    assert (run.state, type(run.error)) == (states.FAILURE, EncodeError)


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize(
    "headers",
    [
        {HEADER: "x"},
        {HEADER: {"busy": "many", "away": 0, "since": 0}},
        {HEADER: {"busy": 1}},
        {HEADER: None},
        {},
    ],
    ids=["text", "words", "parts", "none", "missing"],
)
def test_a_header_that_is_not_ours_counts_as_none(app: Celery, headers: Any) -> None:
    with held_elsewhere("feed:7"):
        run = Traced(refreshes(app, "retry"), 7, headers=headers)
    assert run.state == states.RETRY
    assert run.error.sig.options["headers"][HEADER]["busy"] == 1


@pytest.mark.usefixtures("distlock_settings")
def test_pauses_grow_to_a_limit_and_are_spread(app: Celery) -> None:
    refresh = refreshes(app, "retry", busy_deadline=None, timeout=0)
    pauses = {}
    with held_elsewhere("feed:7"):
        for busy in (0, 1, 2, 20):
            record = {"busy": busy, "away": 3, "since": 1}
            pauses[busy] = Traced(refresh, 7, headers={HEADER: record}).error.when
    assert 0.5 <= pauses[0] <= 1 <= pauses[1] <= 2 <= pauses[2] <= 4
    assert MAX_PAUSE / 2 <= pauses[20] <= MAX_PAUSE


@pytest.mark.usefixtures("distlock_settings")
def test_the_limit_counts_busy_locks_only(app: Celery) -> None:
    refresh = refreshes(app, "retry", busy_limit=2, busy_deadline=None)
    with held_elsewhere("feed:7"):
        last = Traced(refresh, 7, headers={HEADER: {"busy": 1, "away": 50, "since": 1}})
        over = Traced(refresh, 7, headers={HEADER: {"busy": 2, "away": 0, "since": 1}})
    assert last.state == states.RETRY
    assert (over.state, type(over.error)) == (states.FAILURE, LockBusy)


def test_zookeeper_goes_while_a_task_runs_and_while_others_come(
    redis: Redis, tmp_path: Path, settings: Settings
) -> None:
    """Real parts: the one that holds fails, those that come are put off, and all goes on."""
    with (
        ZooKeeper() as zookeeper,
        fleet(
            zookeeper,
            tmp_path,
            redis.new_database(),
            RETRY_AFTER=0.2,
            SESSION_TIMEOUT=4,
            CONNECT_TIMEOUT=0.5,
        ) as troupe,
        troupe.worker(pool="prefork", concurrency=2) as worker,
    ):
        holder = troupe.task("default", TASKS).delay("feed", "holder")
        troupe.stage.await_entry("holder")
        zookeeper.servers[0].kill()
        comer = troupe.task("retry", TASKS).delay("feed", "comer")
        eventually(lambda: f"[{comer.id}] retry: Retry in" in worker.log, PATIENCE)
        eventually(lambda: "was lost while held" in worker.log, PATIENCE)
        troupe.stage.let_go("holder")
        with pytest.raises(Exception, match="is lost"):
            holder.get(timeout=PATIENCE)
        assert not troupe.stage.told("comer")
        zookeeper.servers[0].start()
        said = comer.get(timeout=PATIENCE)
        assert said["headers"][HEADER]["away"] > 0
        settings.DISTLOCK = troupe.distlock
        with zk_lock("feed", timeout=PATIENCE):
            pass
        close_sessions()
