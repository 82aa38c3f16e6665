"""A lock outlives a failover, or its holder knows of the loss before a rival comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from pytest_django import Settings

from distlock import Hold, LockBusy, LockLost, LockUnavailable, zk_lock
from distlock.engine.redis.address import address
from distlock.session.registry import close_sessions
from distlock_chaos.redis_sentinel import ReplicatedRedis
from distlock_chaos.redis_server import Redis, RedisNotInstalled
from tests.kit.engines import first_then_deep
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Owner, await_connection, within

#: Seconds. Two thirds of it are longer than a failover, also when the first vote is split.
SESSION_TIMEOUT = 12


@pytest.fixture
def servers(settings: Settings) -> Iterator[ReplicatedRedis]:
    """A primary with two replicas, for the aliases "default" and "other"."""
    servers = ReplicatedRedis(failover_timeout=2000)
    try:
        servers.start()
    except RedisNotInstalled as error:
        pytest.skip(str(error))
    options = {"HOSTS": servers.hosts, "SESSION_TIMEOUT": SESSION_TIMEOUT, "REPLICAS": 1}
    settings.DISTLOCK = {"default": options, "other": options}
    yield servers
    close_sessions()
    servers.stop()


def cut_off(settings: Settings, primary: Redis, **options: Any) -> None:
    """Let the alias "other" know no server but this one."""
    aliases = settings.DISTLOCK
    other = {**aliases["other"], "HOSTS": primary.hosts, "SESSION_TIMEOUT": 3, **options}
    default = {**aliases["default"], "SESSION_TIMEOUT": 3}
    settings.DISTLOCK = {"default": default, "other": other}


@pytest.fixture
def holder(make_owner: MakeOwner) -> Owner:
    return make_owner()


def hold_by(holder: Owner) -> Hold:
    """Let somebody take "key" over the session "other"."""
    hold: Hold = holder.now(zk_lock("key", using="other").__enter__)
    return hold


def release(holder: Owner) -> None:
    holder.now(zk_lock("key", using="other").release)


def await_rival(former: Hold) -> None:
    """Wait until somebody else gets "key", with a greater token and after the loss."""

    def granted() -> bool:
        with suppress(LockBusy, LockUnavailable), zk_lock("key", timeout=0.5) as hold:
            assert former.lost
            assert former.token < hold.token
            return True
        return False

    eventually(granted, PATIENCE, "a grant")


def test_a_replicated_lock_outlives_its_primary(
    servers: ReplicatedRedis, holder: Owner, make_owner: MakeOwner
) -> None:
    hold, waiter = hold_by(holder), make_owner()
    awaited = waiter.submit(zk_lock("key", timeout=None).__enter__)
    eventually(lambda: len(zk_lock("key").participants()) == 2, PATIENCE, "a waiter")
    first = servers.primary
    first.kill()
    servers.successor(first)
    for using in ("default", "other"):
        await_connection(using)
    assert not hold.lost
    with pytest.raises(LockUnavailable, match="has just started, taken the place"):
        zk_lock("another").acquire(timeout=0)
    release(holder)
    next_hold = awaited.result(PATIENCE)  # it was in line before
    assert not next_hold.lost
    assert hold.token < next_hold.token
    waiter.now(zk_lock("key").release)


@pytest.mark.parametrize("used_before", first_then_deep([False, True]))
def test_a_lock_that_was_not_replicated_is_free_once_its_holder_knows(
    servers: ReplicatedRedis, settings: Settings, holder: Owner, used_before: bool
) -> None:
    first = servers.primary
    cut_off(settings, first, REPLICAS=0)
    if used_before:
        await_connection("other")
    first.ask("ACL", "SETUSER", "default", "-psync", "-sync")
    first.ask("CLIENT", "KILL", "TYPE", "replica")
    hold = hold_by(holder)
    first.kill()
    second = servers.successor(first)
    assert second.ask("KEYS", "*-lock-*") == []
    with pytest.raises(LockUnavailable, match="taken the place of another"):
        zk_lock("key").acquire(timeout=0)
    await_rival(hold)
    with pytest.raises(LockLost):
        release(holder)


@pytest.mark.parametrize("paused", first_then_deep([False, True]))
def test_a_holder_at_a_former_primary_that_lives_on_is_told_in_time(
    servers: ReplicatedRedis, settings: Settings, holder: Owner, paused: bool
) -> None:
    first = servers.primary
    cut_off(settings, first)
    hold = hold_by(holder)
    if paused:
        first.pause()
        servers.successor(first)
        first.go_on()
    else:
        servers.fail_over()
    await_rival(hold)
    with pytest.raises(LockLost):
        release(holder)
    assert first.ask("ROLE")[0] == "master"  # it still is for those who know no other
    with pytest.raises(LockUnavailable):
        hold_by(holder)


def test_a_sentinel_that_is_down_costs_no_time(servers: ReplicatedRedis) -> None:
    servers.sentinels[0].kill()
    with within(1):
        assert address(servers.hosts).server(1.0) == ("127.0.0.1", servers.primary.port)
