"""`doctor` where an alias uses PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from distlock.engine.postgresql import server as postgresql_server
from distlock.engine.protocol import Finding
from distlock.management.subcommands.doctor import diagnose
from distlock_chaos.ports import free_ports
from tests.commands.tools import run
from tests.kit.services import Postgres
from tests.kit.tools import PATIENCE


@pytest.fixture
def hosts(postgres: Postgres, use: Callable[..., None]) -> str:
    """A database that the aliases use."""
    hosts = postgres.new_database()
    use(hosts)
    return hosts


def findings() -> dict[str, Finding]:
    """The findings by the first word of their subject."""
    return {one.subject.partition(" ")[0]: one for one in diagnose(timeout=PATIENCE)}


@pytest.mark.usefixtures("hosts")
def test_where_all_is_well_everything_is_ok() -> None:
    found = findings()
    assert {name: one.level for name, one in found.items() if one.level != "ok"} == {}
    sessions = ["session", "timeout", "permissions", "clock"]
    assert list(found) == ["settings", "database", "notifications", *sessions]
    assert "a round trip takes" in found["database"].message
    assert run("doctor")[0] == 0


def test_a_long_transaction_is_a_warning(hosts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql_server, "_LONG_SECONDS", -1)
    with psycopg.connect(hosts.partition(":")[2]) as other:
        other.execute("SELECT 1")
        assert findings()["long"].level == "warning"


def test_a_server_that_is_not_there_is_an_error(use: Callable[..., None]) -> None:
    (port,) = free_ports(1)
    use(f"database:postgresql://shop@127.0.0.1:{port}/shop", CONNECT_TIMEOUT=1)
    status, out, errors = run("doctor")
    assert status == 1
    assert "does not serve" in " ".join(out.split())
    assert "Locks do not work here" in errors
