"""A server that has started again, or lost data, grants no lock that a holder may believe in."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from pytest_django import Settings
from redis.exceptions import ResponseError

from distlock import Hold, LockLost, LockUnavailable, zk_lock
from distlock.conf import configuration
from distlock.engine.redis import errors, requests
from distlock.engine.redis.library import CODE, NAME, digest
from distlock.engine.redis.requests import beginning, call, session_arguments
from distlock.session.registry import close_sessions
from distlock_chaos.proxy import TcpProxy
from tests.interrupts.recipes import RECIPES
from tests.kit.engines import first_then_deep
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, MakeOwner, Owner, await_connection, within

#: Seconds.
SESSION_TIMEOUT = 3


KEPT = ("--appendonly", "yes", "--appendfsync", "always")


FORGETS = ("--appendonly", "no")


def forget(server: Redis) -> None:
    """Start the server again without what it knew."""
    end(server)
    server.run()


def end(server: Redis) -> None:
    """End the server, and let it forget what it knew."""
    server.kill()
    for kept in server.home.glob("appendonly*"):  # a file of Redis 6
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    server.options = FORGETS


@pytest.fixture(autouse=True)
def _new_servers_had_no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they may have had some, but of processes with this session timeout."""
    monkeypatch.setattr(requests, "USUAL_SECONDS", SESSION_TIMEOUT)


@pytest.fixture
def server(settings: Settings) -> Iterator[Redis]:
    """A server that keeps its data on disk, and had no locks, for the two aliases."""
    server = Redis(*KEPT).start()
    server.grant_at_once(configuration("default").namespace)
    options = {
        "HOSTS": server.hosts,
        "SESSION_TIMEOUT": SESSION_TIMEOUT,
        "CONNECT_TIMEOUT": PATIENCE,
        "TIMEOUT": 0.5,
    }
    settings.DISTLOCK = {"default": options, "other": options}
    yield server
    close_sessions()
    server.stop()


@pytest.fixture
def holder(make_owner: MakeOwner) -> Owner:
    return make_owner()


@pytest.mark.parametrize("options", [KEPT, FORGETS], ids=["file gone", "no file"])
def test_a_new_server_that_may_have_forgotten_grants_after_the_session_timeout(
    server: Redis, options: tuple[str, ...]
) -> None:
    end(server)
    server.options = options
    server.run()
    with pytest.raises(LockUnavailable, match=r"has just started.* for \d\.\d s more"):
        zk_lock("key").acquire()
    eventually(grants, 3 * SESSION_TIMEOUT, "a grant")


@pytest.mark.parametrize(
    "recipe", first_then_deep(["mutex", "handoff", "semaphore", "multilock", "lease"])
)
def test_a_caller_that_has_the_time_waits_until_the_server_grants(
    server: Redis, recipe: str
) -> None:
    forget(server)
    with RECIPES[recipe](timeout=60):
        pass


def test_a_caller_that_awaits_the_grants_notices_that_the_server_is_away(
    server: Redis, settings: Settings, holder: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    def refuse(*said: str) -> errors.JustStarted:
        refused.set()
        return grace(*said)

    grace = errors._grace
    monkeypatch.setattr(errors, "_grace", refuse)
    monkeypatch.setattr(requests, "USUAL_SECONDS", 3 * PATIENCE)
    settings.DISTLOCK = {"default": {**settings.DISTLOCK["default"], "CONNECT_TIMEOUT": 1}}
    forget(server)
    await_connection()
    acquired = holder.submit(zk_lock("key", timeout=4 * PATIENCE).acquire)
    assert refused.wait(PATIENCE)
    server.kill()
    with pytest.raises(LockUnavailable):
        acquired.result(PATIENCE)


def test_tasks_wait_until_the_server_grants(server: Redis) -> None:
    async def use() -> float:
        async with zk_lock("key", timeout=60) as hold:
            return hold.waited

    forget(server)
    assert asyncio.run(use()) > 1


def test_a_caller_that_has_no_time_is_refused_at_once(server: Redis) -> None:
    forget(server)
    await_connection()
    for timeout in (1, 0):
        with within(0.9), pytest.raises(LockUnavailable, match="wait longer with timeout="):
            zk_lock("key", timeout=timeout).acquire()


def test_the_time_without_grants_is_never_shorter(server: Redis) -> None:
    """The server counts the seconds of the clock that have begun since it started."""
    end(server)
    eventually(lambda: 0.6 < time.time() % 1 < 0.7, PATIENCE, "the end of a second")
    started = time.monotonic()
    server.run()
    eventually(lambda: time.time() % 1 < 0.5, PATIENCE, "the next second")
    eventually(grants, 3 * SESSION_TIMEOUT, "a grant")
    assert time.monotonic() - started > SESSION_TIMEOUT


def grants() -> bool:
    try:
        with zk_lock("key", using="other"):
            return True
    except LockUnavailable:
        return False


def test_a_hold_survives_a_restart_that_loses_nothing(server: Redis, holder: Owner) -> None:
    lock = zk_lock("key")
    hold = holder.now(lock.__enter__)
    session = await_connection()
    before = session.id
    server.kill()
    server.run()
    eventually(lambda: session.connected, PATIENCE)
    assert session.id == before
    assert not hold.lost
    with pytest.raises(LockUnavailable, match="has just started"):  # nobody comes in its place
        zk_lock("another", using="other").acquire()
    holder.now(lock.release)
    eventually(grants, 3 * SESSION_TIMEOUT, "a grant")


def forget_all(server: Redis) -> None:
    server.ask("FLUSHALL")
    server.ask("SCRIPT", "FLUSH")


def flush_for_another_version(server: Redis) -> None:
    server.ask("FLUSHALL")
    begin_session(server, code=CODE + b"\n")


def delete_keys(server: Redis) -> None:
    server.ask("DEL", *server.ask("KEYS", "*"))


def lose_file(server: Redis) -> None:
    end(server)
    server.options = KEPT
    server.run()


def forget_for_the_hasty(server: Redis) -> None:
    forget(server)
    begin_session(server, timeout=0.2)


def begin_session(server: Redis, *, timeout: float = SESSION_TIMEOUT, code: bytes = CODE) -> None:
    """Be the first that comes to a server, with this timeout and this version of distlock."""
    conf = replace(configuration("default"), session_timeout=timeout)
    command = call(session_arguments(conf, 1, b"", 1), beginning(conf, None))
    server.ask("SCRIPT", "LOAD", code)
    server.ask(*(part.replace(NAME, digest(code)) for part in command))


@pytest.mark.parametrize(
    "lose",
    [
        forget,
        lose_file,
        lambda server: server.ask("FLUSHALL"),
        forget_all,
        delete_keys,
        flush_for_another_version,
        forget_for_the_hasty,
    ],
    ids=["restart", "lose file", "flush", "flush all", "delete", "other version", "hasty"],
)
def test_nobody_gets_a_forgotten_lock_while_its_holder_believes_in_it(
    server: Redis, holder: Owner, lose: Callable[[Redis], None]
) -> None:
    lock = zk_lock("key")
    hold = holder.now(lock.__enter__)
    await_connection("other")
    lose(server)
    assert_told_before_a_rival_comes(hold)
    with pytest.raises(LockLost):
        holder.now(lock.release)


def assert_told_before_a_rival_comes(hold: Hold) -> None:
    forgotten_at = time.monotonic()
    believed_until = granted_at = 0.0
    while not granted_at:
        if not hold.lost:
            believed_until = time.monotonic()
        if grants():
            granted_at = time.monotonic()
    assert believed_until < granted_at
    assert granted_at - forgotten_at > SESSION_TIMEOUT * 2 / 3


def test_a_replica_that_takes_over_waits_for_the_longest_timeout(
    server: Redis, settings: Settings, holder: Owner
) -> None:
    """The first process that comes to it has a shorter one."""
    await_connection()
    with Redis("--replicaof", "127.0.0.1", str(server.port)) as replica:
        await_copy(replica)
        server.ask("ACL", "SETUSER", "default", "-psync", "-sync")
        server.ask("CLIENT", "KILL", "TYPE", "replica")
        default = settings.DISTLOCK["default"]
        settings.DISTLOCK = {"default": default, "other": {**default, "HOSTS": replica.hosts}}
        hold = holder.now(zk_lock("key").__enter__)
        server.kill()
        replica.ask("REPLICAOF", "NO", "ONE")
        begin_session(replica, timeout=1)
        assert_told_before_a_rival_comes(hold)
        with pytest.raises(LockLost):
            holder.now(zk_lock("key").release)
        close_sessions()


def test_a_server_that_another_has_replaced_for_a_while_grants_nothing_at_first(
    server: Redis,
) -> None:
    """It has the data of the other now, and the same process as before."""
    with zk_lock("key"):
        pass
    close_sessions()  # or else this one meets the server first, and the time may be up
    with Redis("--replicaof", "127.0.0.1", str(server.port)) as replica:
        await_copy(replica)
        replica.ask("REPLICAOF", "NO", "ONE")
        follow(server, replica)
        await_copy(server)
        server.ask("REPLICAOF", "NO", "ONE")
    with pytest.raises(LockUnavailable, match="taken the place of another"):
        zk_lock("key").acquire()
    eventually(grants, 3 * SESSION_TIMEOUT, "a grant")


def follow(server: Redis, primary: Redis) -> None:
    """Make a server a replica, and end its connections, as Sentinel does."""
    server.ask("REPLICAOF", "127.0.0.1", primary.port)
    server.ask("CLIENT", "KILL", "TYPE", "normal")


def await_copy(replica: Redis) -> None:
    eventually(
        lambda: replica.ask("INFO", "replication").get("master_link_status") == "up", PATIENCE
    )


def test_a_primary_that_frees_its_backlog_goes_on_granting(
    server: Redis, settings: Settings
) -> None:
    """An hour after a failover, as Redis comes."""
    hasty = ("--repl-backlog-ttl", "1", "--repl-ping-replica-period", "1")
    with Redis("--replicaof", "127.0.0.1", str(server.port), *hasty) as replica:
        await_copy(replica)
        replica.ask("REPLICAOF", "NO", "ONE")
        default = settings.DISTLOCK["default"]
        there = {**default, "HOSTS": replica.hosts}
        settings.DISTLOCK = {"default": there, "other": there}
        eventually(grants, 3 * SESSION_TIMEOUT, "a grant")

        def promoted() -> int:
            return int(replica.ask("INFO", "replication")["second_repl_offset"])

        eventually(lambda: promoted() == -1, PATIENCE, "a backlog that is freed")
        close_sessions()
        with zk_lock("key", timeout=PATIENCE):
            pass
        close_sessions()


def test_a_session_without_its_last_transaction_lasts_until_its_holder_knows(
    server: Redis, settings: Settings, holder: Owner, make_owner: MakeOwner
) -> None:
    waiter = make_owner()
    with TcpProxy("127.0.0.1", server.port) as link:
        default = settings.DISTLOCK["default"]
        other = {**default, "HOSTS": f"redis://{link.address}/0"}
        settings.DISTLOCK = {"default": default, "other": other}
        hold = holder.now(zk_lock("key", using="other").__enter__)
        awaited = waiter.submit(zk_lock("key", timeout=None).__enter__)
        eventually(lambda: len(zk_lock("key").participants()) == 2, PATIENCE, "a waiter")
        session = await_connection("other")
        link.black_hole()  # the answer below does not reach the holder
        conf = configuration("other")
        after = beginning(conf, 2**52)
        token = session_arguments(conf, *session._client.credentials, 2)
        with pytest.raises(ResponseError, match="SESSIONOVER"):
            server.ask(*call(token, after))
        awaited.result(PATIENCE)
        assert hold.lost
        waiter.now(zk_lock("key").release)
        with pytest.raises(LockLost):
            holder.now(zk_lock("key", using="other").release)


def test_an_older_copy_without_sessions_may_lack_those_of_longer_timeouts(server: Redis) -> None:
    """It was made in a moment without any; its process has another session timeout than they."""
    with zk_lock("key"):
        pass
    close_sessions()
    server.kill()
    server.run()
    begin_session(server, timeout=SESSION_TIMEOUT / 6)
    state = requests.prefix(configuration("default")) + b"state"
    assert float(server.ask("HGET", state, "span")) == SESSION_TIMEOUT * 1_000_000
