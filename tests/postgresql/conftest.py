"""The fixtures of the recipes' tests, with PostgreSQL in place of ZooKeeper; a server to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from distlock.engine.postgresql import server as postgresql_server
from distlock.session.registry import close_sessions
from distlock_chaos.server import ZooKeeper
from tests.kit.engines import served_by
from tests.kit.services import Postgres, PostgresNotInstalled
from tests.kit.tools import PATIENCE

from .tools import SESSION_TIMEOUT


@pytest.fixture(scope="package")
def zookeeper(postgres: Postgres) -> ZooKeeper:
    return served_by(postgres)


@pytest.fixture(scope="package")
def _server() -> Iterator[Postgres]:
    server = Postgres(own={"synchronous_commit": "on", "wal_level": "logical"})
    try:
        server.start()
    except PostgresNotInstalled as error:
        pytest.skip(str(error))
    yield server
    server.stop()


@pytest.fixture
def server(
    _server: Postgres, use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Postgres:
    """A server that a test may stop, with a new database for both aliases."""
    monkeypatch.setattr(postgresql_server, "_USUAL_SECONDS", SESSION_TIMEOUT)
    _server.hosts = _server.new_database()
    use(_server.hosts)
    return _server


@pytest.fixture
def use(settings: Settings, namespace: str) -> Iterator[Callable[..., None]]:
    """Point the aliases "default" and "other" to databases, by default to the same one."""

    def point(default: str, other: str = "", **more: Any) -> None:
        times = {"SESSION_TIMEOUT": SESSION_TIMEOUT, "TIMEOUT": 0.5, "CONNECT_TIMEOUT": PATIENCE}
        options = {"NAMESPACE": namespace, **times, **more}
        settings.DISTLOCK = {
            "default": {"HOSTS": default, **options},
            "other": {"HOSTS": other or default, **options},
        }

    yield point
    close_sessions()
