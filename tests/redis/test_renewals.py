"""A client counts as a renewal of its session only what the server does."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pytest_django import Settings

from distlock import LockLost, zk_lock
from distlock.engine.deadline import now
from distlock.engine.redis.client import RedisClient
from distlock.session.registry import close_sessions
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, MakeOwner, await_connection, inside

#: Seconds.
SESSION_TIMEOUT = 4


@pytest.fixture
def link(redis: Redis, settings: Settings, namespace: str) -> Iterator[TcpProxy]:
    """The way of the alias "other" to a server that "default" reaches by itself."""
    hosts = redis.new_database()
    times = {"SESSION_TIMEOUT": SESSION_TIMEOUT, "CONNECT_TIMEOUT": PATIENCE, "TIMEOUT": PATIENCE}
    default = {"HOSTS": hosts, "NAMESPACE": namespace, **times}
    with TcpProxy("127.0.0.1", redis.port) as link:
        other = {**default, "HOSTS": f"redis://{link.address}/{hosts.rpartition('/')[2]}"}
        settings.DISTLOCK = {"default": default, "other": other}
        yield link
        close_sessions()


def test_a_holder_that_is_cut_off_after_a_late_acquire_knows_before_a_rival(
    link: TcpProxy, make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process stood still since the last ping."""
    holder, rival = make_owner(), make_owner()
    await_connection()
    with monkeypatch.context() as standing_still:
        standing_still.setattr(RedisClient, "_ping", lambda *_: None)
        await_connection("other")
        begun = time.monotonic()
        eventually(lambda: time.monotonic() - begun > 0.6 * SESSION_TIMEOUT, PATIENCE)
        hold = holder.now(zk_lock("key", using="other").__enter__)
        link.black_hole()
    waiting = rival.submit(zk_lock("key", timeout=PATIENCE).__enter__)
    believed_until = 0.0
    while not waiting.done():
        if not hold.lost:
            believed_until = time.monotonic()
        time.sleep(0.001)
    assert time.monotonic() - believed_until > SESSION_TIMEOUT / 6
    waiting.result(0)
    rival.now(zk_lock("key").release)
    with pytest.raises(LockLost):
        holder.now(zk_lock("key", using="other").release)


def test_a_connection_that_falls_silent_after_an_acquire_is_replaced_in_time(
    link: TcpProxy, make_owner: MakeOwner
) -> None:
    """Before the deadline, which the last ping has set."""
    holder = make_owner()
    client = inside(await_connection("other"))
    renewed_at, connection = client.renewed_at, client._number
    eventually(lambda: client.renewed_at > renewed_at, PATIENCE, "an answered ping")
    eventually(lambda: now() > client.renewed_at + 0.22 * SESSION_TIMEOUT, PATIENCE)
    hold = holder.now(zk_lock("key", using="other").__enter__)
    link.hold_back()
    eventually(lambda: client._number > connection, PATIENCE, "another connection")
    hold.verify()
    holder.now(zk_lock("key", using="other").release)


@pytest.mark.usefixtures("link")
def test_an_acquire_after_a_while_needs_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection's own pings renew the session while nobody holds or waits."""
    session = await_connection()
    begun = time.monotonic()
    eventually(lambda: time.monotonic() - begun > SESSION_TIMEOUT * 0.8, PATIENCE)
    proven: list[bool] = []
    monkeypatch.setattr(session, "prove", proven.append)
    with zk_lock("key") as hold:
        assert hold.valid_for() > 0
    assert not proven
