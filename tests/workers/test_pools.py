"""Celery's pools, ended in order and killed: the lock is free before the session timeout."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import PATIENCE, Fleet, fleet
from tests.kit.engines import tree_at
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import Tree, within
from tests.servers.conftest import database, site
from tests.servers.site import Site, end

pytestmark = [pytest.mark.deep, pytest.mark.engines("zookeeper", "redis")]

SESSION_SECONDS = 20
#: Far from the session timeout, and from what it takes.
SOON = SESSION_SECONDS / 2
#: What a worker frees at its end is not the session reaper's doing then.
NO_REAPER = {"distlock_session_reaper": False}


def take_turns(troupe: Fleet) -> None:
    """Let six tasks have one lock."""
    for _ in range(6):
        troupe.task("pass_by").delay("key", "passer")
    eventually(lambda: len(troupe.stage.told("passer", "leave")) == 6, PATIENCE, "six turns")
    facts = [line.facts[0] for line in troupe.stage.lines()]
    assert facts == ["enter", "leave"] * 6


@pytest.fixture
def broker(redis: Redis) -> str:
    return redis.new_database()


@contextmanager
def watched_fleet(
    zookeeper: ZooKeeper, folder: Path, broker: str, **celery: Any
) -> Iterator[tuple[Fleet, Tree]]:
    with (
        fleet(zookeeper, folder, broker, celery=celery, SESSION_TIMEOUT=SESSION_SECONDS) as one,
        tree_at(zookeeper.hosts, one.distlock["default"]["NAMESPACE"]) as tree,
    ):
        yield one, tree


@pytest.mark.parametrize(
    ("pool", "config"),
    [
        pytest.param("prefork", {}, id="prefork"),
        pytest.param("prefork", {"worker_pool_start_method": "spawn"}, id="spawn"),
        pytest.param("solo", {}, id="solo"),
        pytest.param("threads", {}, id="threads"),
        pytest.param("gevent", {}, id="gevent"),
    ],
)
def test_a_warm_shutdown_frees_everything_at_once(
    zookeeper: ZooKeeper, broker: str, tmp_path: Path, pool: str, config: dict[str, Any]
) -> None:
    config = {**NO_REAPER, **config}
    with (
        watched_fleet(zookeeper, tmp_path, broker, **config) as (one, tree),
        one.worker(pool=pool, concurrency=2) as worker,
    ):
        take_turns(one)
        one.task("hold").delay("key", "last")
        one.stage.await_entry("last")
        worker.process.send(signal.SIGTERM)
        eventually(lambda: "Warm shutdown" in worker.log, PATIENCE, "a warm shutdown")
        assert tree.line("key")
        one.stage.let_go("last")
        worker.process.wait(PATIENCE)
        assert one.stage.told("last", "leave")
        assert not tree.lock_nodes()


def test_a_cold_shutdown_of_prefork_frees_everything_at_once(
    zookeeper: ZooKeeper, broker: str, tmp_path: Path
) -> None:
    """Celery ends the children with SIGTERM, and with them their tasks."""
    with (
        watched_fleet(zookeeper, tmp_path, broker, **NO_REAPER) as (one, tree),
        one.worker(concurrency=2) as worker,
    ):
        one.task("hold").delay("key", "last")
        one.stage.await_entry("last")
        worker.stop(signal.SIGQUIT)
        assert not one.stage.told("last", "leave")
        assert not tree.lock_nodes()


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads", "gevent"])
def test_a_killed_worker_frees_its_locks_soon(
    zookeeper: ZooKeeper, broker: str, tmp_path: Path, pool: str
) -> None:
    """The session reaper is no child of the worker; prefork's children are, and die with it."""
    with (
        watched_fleet(zookeeper, tmp_path, broker) as (one, tree),
        one.worker(pool=pool, concurrency=2) as worker,
    ):
        one.task("hold").delay("key", "last")
        one.stage.await_entry("last")
        with within(SOON):
            worker.stop(signal.SIGKILL)
            tree.await_line("key", 0)


# --- a reaper beside gunicorn's master -----------------------------------------------------------


__all__ = ["database", "site"]


def test_a_killed_worker_of_gunicorn_frees_its_locks_soon(site: Site) -> None:
    name = site.database.make_counter()
    config = "--config=python:tests.testproject.gunicorn_session_reaper"
    with site.gunicorn(config, SESSION_TIMEOUT=SESSION_SECONDS) as server:
        pid = server.post(f"/hold/{name}/")[1]["pid"]
        with within(SESSION_SECONDS / 2):
            end(pid, SIGKILL)
            status, said = server.post(f"/function/{name}/")
        assert status == 200
        assert said["pid"] != pid
        eventually(lambda: f"Process {pid} died" in server.log)
        server.stop()
        assert server.log.count("died") == 1
