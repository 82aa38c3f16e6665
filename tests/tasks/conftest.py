"""Fixtures of the task tests: one worker with four children for each module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from pytest_django import Settings

from distlock import zk_locked
from distlock.celery.queued_once import QueuedOnce
from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import Fleet, Worker, disconnect, fleet
from tests.kit.services import Redis


@pytest.fixture(scope="module")
def module_fleet(
    zookeeper: ZooKeeper, redis: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """A broker, and tasks that are put off for a tenth of a second at first."""
    folder = tmp_path_factory.mktemp("fleet")
    broker = redis.new_database()
    with fleet(zookeeper, folder, broker, RETRY_AFTER=0.1, SESSION_TIMEOUT=10) as one:
        yield one


@pytest.fixture(scope="module")
def worker(module_fleet: Fleet) -> Iterator[Worker]:
    with module_fleet.worker() as worker:
        yield worker


@pytest.fixture
def troupe(module_fleet: Fleet, worker: Worker, settings: Settings) -> Fleet:
    """A running fleet whose locks this test sees and takes."""
    del worker
    settings.DISTLOCK = module_fleet.distlock
    return module_fleet


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app without workers. Its tasks are ``shared=False``, or all later apps would have them."""
    with Celery("app", broker="memory://", backend="cache+memory://", set_as_current=False) as app:
        app.conf.task_publish_retry = False
        yield app


@pytest.fixture
def report(app: Celery) -> Any:
    """A task that is queued once, and whose messages nobody takes."""

    @app.task(base=QueuedOnce, shared=False)
    @zk_locked("report:<day>")
    def report(day: str) -> str:
        return day

    return report


@pytest.fixture
def key() -> str:
    """A key of this test's own."""
    return f"k-{uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def _disconnects(request: pytest.FixtureRequest) -> Iterator[None]:
    """The fleet of a module keeps no connection of a test, nor does the process."""
    yield
    for one in request.node.funcargs.values():
        if isinstance(one, Fleet | Celery):
            disconnect(one.app if isinstance(one, Fleet) else one)
