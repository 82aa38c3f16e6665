"""A server whose clock is set gives no lock away, and keeps none that has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pytest_django import Settings

from distlock import LockBusy, LockUnavailable, zk_lock
from distlock.session.registry import close_sessions
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.redis_server import Redis
from distlock_chaos.server import ServerNotInstalled
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, await_connection

#: Seconds.
SESSION_TIMEOUT = 3
#: More than any session lasts, in seconds.
STEP = 600


@pytest.fixture
def server(settings: Settings) -> Iterator[Redis]:
    """A server whose clock can be set, for the aliases "default" and "other"."""
    server = Redis(stepping_clock=True)
    try:
        server.start()
    except ServerNotInstalled as error:
        pytest.skip(str(error))
    point(settings, server, server.address)
    yield server
    close_sessions()
    server.stop()


def point(settings: Settings, server: Redis, holder: str) -> None:
    """Let the alias "other" reach the server at this address."""
    times = {"SESSION_TIMEOUT": SESSION_TIMEOUT, "CONNECT_TIMEOUT": PATIENCE, "TIMEOUT": PATIENCE}
    default = {"HOSTS": server.hosts, **times}
    other = {**default, "HOSTS": f"redis://{holder}/0"}
    settings.DISTLOCK = {"default": default, "other": other}


@pytest.mark.parametrize("step", [STEP, SESSION_TIMEOUT * 5 / 6])
@pytest.mark.parametrize("cut_off", [False, True], ids=["in touch", "cut off"])
def test_a_clock_that_is_set_ahead_ends_no_session(
    server: Redis, settings: Settings, make_owner: MakeOwner, step: float, cut_off: bool
) -> None:
    holder, rival = make_owner(), make_owner()
    with TcpProxy("127.0.0.1", server.port) as link:
        point(settings, server, link.address)
        hold = holder.now(zk_lock("key", using="other").__enter__)
        waiting = rival.submit(zk_lock("key", timeout=PATIENCE).__enter__)
        eventually(lambda: len(zk_lock("key").participants()) == 2, PATIENCE, "a waiter")
        stepped_at = time.monotonic()
        if cut_off:
            link.black_hole()
        server.set_clock(step)
        believed_until = stepped_at
        while not waiting.done() and time.monotonic() < stepped_at + 2 * SESSION_TIMEOUT:
            if not hold.lost:
                believed_until = time.monotonic()
            time.sleep(0.001)
        if cut_off:
            assert time.monotonic() - believed_until > SESSION_TIMEOUT / 12
            waiting.result(PATIENCE)
        else:
            assert not waiting.done()
            hold.check()
            holder.now(zk_lock("key", using="other").release)
            waiting.result(PATIENCE)
        rival.now(zk_lock("key").release)
        close_sessions()


def test_who_comes_after_a_step_ends_no_session_of_a_client_that_is_connected(
    server: Redis, make_owner: MakeOwner
) -> None:
    holder = make_owner()
    hold = holder.now(zk_lock("key", using="other").__enter__)
    server.set_clock(STEP)
    assert not zk_lock("key").acquire(timeout=0)
    with pytest.raises(LockBusy), zk_lock("key", timeout=2 * SESSION_TIMEOUT):
        pass
    hold.check()
    holder.now(zk_lock("key", using="other").release)


def test_a_clock_that_is_set_back_keeps_no_dead_session(
    server: Redis, settings: Settings, make_owner: MakeOwner
) -> None:
    holder, rival = make_owner(), make_owner()
    with TcpProxy("127.0.0.1", server.port) as link:
        point(settings, server, link.address)
        hold = holder.now(zk_lock("key", using="other").__enter__)
        waiting = rival.submit(zk_lock("key", timeout=PATIENCE).__enter__)
        eventually(lambda: len(zk_lock("key").participants()) == 2, PATIENCE, "a waiter")
        link.cut()
        server.set_clock(-STEP)
        waiting.result(3 * SESSION_TIMEOUT)
        assert hold.lost
        rival.now(zk_lock("key").release)
        close_sessions()


def grants() -> bool:
    try:
        with zk_lock("key", timeout=0.1):
            return True
    except LockUnavailable:
        return False


def test_a_server_that_starts_ahead_grants_soon_after_its_clock_is_right(server: Redis) -> None:
    server.set_clock(STEP)
    server.kill()
    server.options = ("--appendonly", "no")
    server.run()
    await_connection()
    server.set_clock(0)
    eventually(grants, 3 * SESSION_TIMEOUT, "a grant")


@pytest.mark.parametrize("step", [STEP, -STEP], ids=["ahead", "back"])
def test_the_token_rises_over_a_step(server: Redis, step: float) -> None:
    with zk_lock("key") as first:
        pass
    server.set_clock(step)
    eventually(grants, 3 * SESSION_TIMEOUT, "a grant")
    with zk_lock("key") as second:
        assert second.token > first.token
