"""`doctor` and `kazoo_client()` where an alias uses Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from pytest_django import Settings
from redis import Redis as RedisPy

from distlock.conf import configuration
from distlock.engine.protocol import Finding
from distlock.management.subcommands.doctor import diagnose
from distlock.session.registry import close_sessions, session_for
from distlock_chaos.ports import free_ports
from tests.commands.tools import run
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE

SECRET = "s3cr3t"


@pytest.fixture
def own_redis(settings: Settings, namespace: str) -> Iterator[str]:
    """The URL of a server whose configuration a test may change."""
    with Redis() as server:
        url = server.new_database()
        settings.DISTLOCK = {"default": {"HOSTS": url, "NAMESPACE": namespace}}
        yield url
        close_sessions()


def set_options(settings: Settings, **options: Any) -> None:
    settings.DISTLOCK = {"default": {**settings.DISTLOCK["default"], **options}}


@contextmanager
def administrator(url: str) -> Iterator[Any]:
    with RedisPy.from_url(url) as client:
        yield client


def await_refusal(told: str) -> None:
    session = session_for("default")
    eventually(lambda: told in str(session.unavailable("key")), PATIENCE)


def findings() -> dict[str, Finding]:
    """The findings by their subject; that of the server is "server"."""
    return {one.subject.partition(" ")[0]: one for one in diagnose(timeout=PATIENCE)}


def test_where_all_is_well_everything_is_ok(own_redis: str) -> None:  # noqa: ARG001
    found = findings()
    assert {name: one.level for name, one in found.items() if one.level != "ok"} == {}
    servers = ["settings", "server", "memory", "persistence", "replicas"]
    sessions = ["session", "timeout", "permissions", "clock"]
    assert list(found) == [*servers, *sessions]
    assert found["server"].message.startswith("primary, ")
    assert "a round trip takes" in found["server"].message
    assert found["memory"].message == "maxmemory no limit, maxmemory-policy noeviction"
    assert found["persistence"].message == "appendonly yes"
    assert found["replicas"].message == "0 connected, REPLICAS is 0"
    assert run("doctor")[0] == 0


@pytest.mark.parametrize(("maxmemory", "level"), [("100mb", "error"), ("0", "warning")])
def test_a_server_that_may_evict_locks_is_found(own_redis: str, maxmemory: str, level: str) -> None:
    with administrator(own_redis) as client:
        client.config_set("maxmemory", maxmemory)
        client.config_set("maxmemory-policy", "allkeys-lru")
    found = findings()["memory"]
    assert found.level == level
    assert "may evict a lock that is held" in found.message
    assert "noeviction" in found.advice


def test_a_server_that_forgets_at_a_restart_is_a_warning(own_redis: str) -> None:
    with administrator(own_redis) as client:
        client.config_set("appendonly", "no")
    found = findings()["persistence"]
    assert found.level == "warning"
    assert "appendonly no: a restart forgets locks" in found.message
    assert found.advice == "Set appendonly yes."


def test_replicas_that_are_missing_are_an_error(own_redis: str, settings: Settings) -> None:
    set_options(settings, REPLICAS=1)
    found = findings()["replicas"]
    assert (found.level, found.message) == (
        "error",
        "0 connected, REPLICAS is 1: no lock is granted.",
    )
    with ExitStack() as stack:
        url = stack.enter_context(Redis()).new_database()
        replica = stack.enter_context(administrator(url))
        primary = stack.enter_context(administrator(own_redis))
        port = own_redis.rpartition(":")[2].partition("/")[0]
        replica.replicaof("127.0.0.1", port)
        eventually(lambda: primary.info("replication")["connected_slaves"] == 1, PATIENCE)
        assert findings()["replicas"].message == "1 connected, REPLICAS is 1"
        set_options(settings, REPLICAS=0)
        found = findings()["replicas"]
        assert found.level == "warning"
        assert "a lease may have two owners for the rest of its time" in found.message
        set_options(settings, HOSTS=url)
        found = findings()["server"]
        assert (found.level, found.message.partition(",")[0]) == ("error", "replica")
        close_sessions()


def test_no_password_is_shown(own_redis: str, settings: Settings) -> None:
    with administrator(own_redis) as client:
        client.config_set("requirepass", SECRET)
    for password in (SECRET, f"{SECRET}-wrong"):
        set_options(settings, HOSTS=own_redis.replace("//", f"//:{password}@"))
        status, out, errors = run("doctor")
        assert SECRET not in f"{out}{errors}{configuration()!r}"
        close_sessions()
    assert status == 1
    refused = "refused the name or the password in HOSTS"
    assert refused in " ".join(out.split())
    set_options(settings, HOSTS=own_redis, CONNECT_TIMEOUT=PATIENCE)
    for password, told in (("", "wants a password"), (f":{SECRET}-wrong@", refused)):
        set_options(settings, HOSTS=own_redis.replace("//", f"//{password}"))
        await_refusal(told)
        close_sessions()


def test_a_server_that_is_not_there_is_an_error(settings: Settings) -> None:
    (port,) = free_ports(1)
    settings.DISTLOCK = {"default": {"HOSTS": f"redis://:{SECRET}@127.0.0.1:{port}/0"}}
    status, out, errors = run("doctor")
    assert (status, errors) == (1, f"Locks do not work here: server 127.0.0.1:{port}.\n")
    assert "does not serve" in out
    assert SECRET not in out


def test_a_user_that_may_not_ask_gets_what_there_is(own_redis: str, settings: Settings) -> None:
    with administrator(own_redis) as client:
        client.acl_setuser(
            "locks",
            enabled=True,
            passwords=[f"+{SECRET}"],
            keys="*",
            channels="*",
            commands=["+@all", "-config"],
        )
    set_options(settings, HOSTS=own_redis.replace("//", f"//locks:{SECRET}@"))
    found = findings()
    assert found["persistence"].message == "appendonly yes"
    assert found["permissions"].level == "ok"
    close_sessions()
    with administrator(own_redis) as client:
        client.acl_setuser("locks", enabled=True, commands=["-info"])
    found = findings()
    assert found["server"].level == "ok"
    assert "may not see more" in found["server"].message
    assert "persistence" not in found
    assert "does not let this user do what locks need" in found["session"].message
