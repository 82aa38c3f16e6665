"""Fixtures: the real servers, each started once for a run (for each worker of pytest-xdist)."""

from __future__ import annotations

import gc
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as settings_of_hypothesis

from distlock import Hold
from distlock.queue import semaphore as limits
from distlock.session import patience
from distlock.testing.fixtures import zookeeper_embedded
from distlock_chaos.fixtures import zookeeper as real_zookeeper
from distlock_chaos.fixtures import zookeeper_ensemble
from tests.kit import table
from tests.kit.engines import pytest_generate_tests, zookeeper
from tests.kit.helpers import ANSWER_SECONDS
from tests.kit.rabbitmq import RabbitMQ, RabbitMQNotInstalled
from tests.kit.services import Postgres, PostgresNotInstalled, Redis, RedisNotInstalled
from tests.kit.skips import pytest_make_collect_report, pytest_runtest_makereport
from tests.kit.versions import pytest_report_header

pytest_plugins = ["tests.kit.leftovers", "tests.kit.fixtures", "tests.interop.fixtures"]

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from pytest_django import Settings

    from distlock_chaos.server import ZooKeeper

__all__ = [
    "pytest_generate_tests",
    "pytest_make_collect_report",
    "pytest_report_header",
    "pytest_runtest_makereport",
    "real_zookeeper",
    "zookeeper",
    "zookeeper_embedded",
    "zookeeper_ensemble",
]


#: What a shell's background jobs, and nohup's, inherit ignored.
USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
}


def pytest_configure() -> None:
    """Let signals reach the children of the tests; check each machine by its table."""
    if threading.current_thread() is threading.main_thread():
        for number, usual in USUAL.items():
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, usual)
    # How long an example takes is the machine's business; with CI set this is so already.
    quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings_of_hypothesis.register_profile("any machine", settings_of_hypothesis(), **quiet)
    settings_of_hypothesis.load_profile("any machine")
    table.hold_machines()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is there until the end, thousands of tests, to no garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep folders together in pytest-randomly's order, so that a worker starts fewer servers."""
    order: dict[Path, int] = {}
    for item in items:
        order.setdefault(item.path.parent, len(order))
    items.sort(key=lambda item: order[item.path.parent])


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server; `postgres.settings()` is a value for `DATABASES`."""
    server = Postgres()
    try:
        server.start()
    except PostgresNotInstalled as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    """A Redis server; each `redis.new_database()` is a broker of its own."""
    server = Redis()
    try:
        server.start()
    except RedisNotInstalled as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """A RabbitMQ server; each `rabbitmq.new_host()` is a broker of its own."""
    server = RabbitMQ()
    try:
        server.start()
    except RabbitMQNotInstalled as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.stop()


#: Whoever asks for one of these wants to know how soon a call ends that gets no answer.
FAULTS = {"broken_link", "own_zookeeper", "zookeeper_ensemble", "partitionable"}


@pytest.fixture(autouse=True)
def _new_servers_had_no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis that has just started grants at once, and not only when nobody may hold any more."""
    with suppress(ImportError):  # redis-py is optional
        from distlock.engine.redis import requests  # noqa: PLC0415

        monkeypatch.setattr(requests, "unknown_ms", lambda _: 0)


@pytest.fixture(autouse=True)
def _no_limit_was_warned_of() -> None:
    """A process warns once of each difference, and many tests use one key."""
    limits._warned.clear()


@pytest.fixture(autouse=True)
def _patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is broken, a server on a busy machine may take its time for an answer.

    A call with a short timeout, or none, would have `LockUnavailable` from it after 0.4 s, and
    `Hold.verify` after a second, which is right, and no subject of most tests. With the fixture
    `as_shipped` it is.
    """
    # By the very `monkeypatch` that tests change it with: each undoes in the reverse order.
    if not {"as_shipped", *FAULTS} & set(request.fixturenames):
        monkeypatch.setattr(patience, "ANSWER_SECONDS", ANSWER_SECONDS)
        monkeypatch.setattr(Hold.verify, "__kwdefaults__", {"timeout": ANSWER_SECONDS})


@pytest.fixture(autouse=True)
def _the_tables_of_states_are_true() -> Iterator[None]:
    """Fail a test in which a machine got an event, or was in a state, that its table lacks."""
    yield
    found = table.faults.copy()
    table.faults.clear()
    assert not found


@pytest.fixture
def as_shipped() -> None:
    """For tests of how long a call waits for an answer."""


@pytest.fixture
def namespace() -> str:
    """A part of the tree that no other test uses."""
    return f"/t-{uuid4()}"


@pytest.fixture
def distlock_settings(settings: Settings, zookeeper: ZooKeeper, namespace: str) -> Settings:
    """`settings.DISTLOCK` names the real server and this test's namespace."""
    settings.DISTLOCK = {
        "default": {
            "HOSTS": zookeeper.hosts,
            "NAMESPACE": namespace,
            "SESSION_TIMEOUT": 4,
            "TIMEOUT": 5,
            "CONNECT_TIMEOUT": 10,
        }
    }
    return settings
