"""Real prefork workers whose children end in every way: the lock is free, and nothing is left.

Stale locks after a killed worker are the field's first complaint. A hard time limit sends SIGTERM,
and SIGKILL 0.1 s later.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pytest_django import Settings

from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import PATIENCE, Fleet, Worker, disconnect, fleet
from tests.kit.engines import tree_at
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import Tree, within

pytestmark = [pytest.mark.deep, pytest.mark.engines("zookeeper", "redis")]

LIFE = "tests.testproject.life_tasks"
SESSION_SECONDS = 20
#: Far from the session timeout, and from what it takes.
SOON = SESSION_SECONDS / 2


@pytest.fixture(scope="module")
def module_fleet(
    zookeeper: ZooKeeper, redis: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    folder, broker = tmp_path_factory.mktemp("fleet"), redis.new_database()
    celery = {"imports": [LIFE]}
    with fleet(zookeeper, folder, broker, celery=celery, SESSION_TIMEOUT=SESSION_SECONDS) as one:
        yield one


@pytest.fixture(scope="module")
def worker(module_fleet: Fleet) -> Iterator[Worker]:
    with module_fleet.worker() as worker:
        yield worker


@pytest.fixture
def troupe(module_fleet: Fleet, settings: Settings) -> Iterator[Fleet]:
    settings.DISTLOCK = module_fleet.distlock
    yield module_fleet
    disconnect(module_fleet.app)


@pytest.fixture
def tree(troupe: Fleet, zookeeper: ZooKeeper) -> Iterator[Tree]:
    """The fleet's namespace; at the end of the test there may be no lock node in it."""
    with tree_at(zookeeper.hosts, troupe.distlock["default"]["NAMESPACE"]) as tree:
        yield tree
        with within(SOON):
            eventually(lambda: not tree.lock_nodes(), PATIENCE, "a tree without lock nodes")


@pytest.fixture
def key() -> str:
    """A key of this test's own, and an actor's name."""
    return f"k-{uuid4().hex[:12]}"


def next_task_enters_soon(troupe: Fleet, key: str) -> None:
    with within(SOON):
        troupe.task("pass_by").delay(key, f"next-{key}")
        troupe.stage.await_entry(f"next-{key}")


def test_after_sigkill_the_next_task_starts_before_the_session_timeout(
    troupe: Fleet, worker: Worker, tree: Tree, key: str
) -> None:
    troupe.task("hold").delay(key, key)
    pid = troupe.stage.await_entry(key).pid
    troupe.task("pass_by").delay(key, f"next-{key}")
    tree.await_line(key, 2)
    with within(SOON):
        os.kill(pid, signal.SIGKILL)
        troupe.stage.await_entry(f"next-{key}")
    eventually(lambda: f"Process {pid} died" in worker.log, PATIENCE, "a line in the log")


@pytest.mark.parametrize("where", ["grant", "body", "release"])
def test_the_soft_time_limit_leaves_nothing(
    troupe: Fleet, worker: Worker, tree: Tree, key: str, where: str
) -> None:
    result = troupe.task("soft_limit", LIFE).delay(key, key, where)
    with pytest.raises(Exception, match="SoftTimeLimitExceeded"):
        result.get(timeout=PATIENCE)
    assert bool(troupe.stage.told(key, "enter")) == (where != "grant")
    next_task_enters_soon(troupe, key)
    tree.await_line(key, 0)
    assert "died" not in worker.log.split(key)[-1]


@pytest.mark.usefixtures("worker")
def test_after_the_hard_time_limit_the_lock_is_free(troupe: Fleet, key: str) -> None:
    """Celery sends SIGTERM, which releases, and SIGKILL a tenth of a second later."""
    result = troupe.task("hold").apply_async((key, key), time_limit=1)
    with pytest.raises(Exception, match="TimeLimitExceeded"):
        result.get(timeout=PATIENCE)
    next_task_enters_soon(troupe, key)


def test_tasks_of_children_that_come_and_go_do_not_overlap(troupe: Fleet, tree: Tree) -> None:
    """4 children, each for 15 tasks, 100 tasks on 5 keys."""
    keys = [f"count-{number}" for number in range(5)]
    with troupe.worker("--max-tasks-per-child=15") as worker:
        count = troupe.task("count", LIFE)
        results = [count.delay(key, 0.001) for _ in range(20) for key in keys]
        children = {result.get(timeout=PATIENCE) for result in results}
        assert len(children) > 4
        for key in keys:
            assert (troupe.folder / f"{key}.count").read_text() == "20"
        worker.stop()
        assert not tree.lock_nodes()
        assert "died" not in worker.log  # each child has closed its session
