"""No call hangs on a dead ensemble, and "unavailable" is not "busy" (promise 7).

kazoo's release blocks for the whole outage, its requests have no bound (CURATOR-599 too), and a try
took nine seconds on a silent link. Here each call ends, and the error names the limit of
connections.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from distlock import LockUnavailable, zk_lock
from distlock.session.registry import session_for
from distlock_chaos.ports import free_ports
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually
from tests.kit.tools import OVERRUN, PATIENCE, MakeOwner, Tree, await_connection, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_django import Settings

    from distlock.session.session import Session

pytestmark = pytest.mark.usefixtures("tree")

CONNECT_TIMEOUT = 0.8
SESSION_TIMEOUT = 2


@pytest.fixture
def short_times(broken_link: TcpProxy, two_sessions: Settings) -> TcpProxy:
    """The breakable link, under a configuration with short times."""
    default = {
        **two_sessions.DISTLOCK["default"],
        "CONNECT_TIMEOUT": CONNECT_TIMEOUT,
        "SESSION_TIMEOUT": SESSION_TIMEOUT,
    }
    two_sessions.DISTLOCK = {**two_sessions.DISTLOCK, "default": default}
    return broken_link


def down_at_start(link: TcpProxy) -> None:
    link.cut()


def silent_at_start(link: TcpProxy) -> None:
    link.black_hole()


def cut_later(link: TcpProxy) -> None:
    session = await_connection()
    link.cut()
    eventually(lambda: not session.connected)


def silent_later(link: TcpProxy) -> None:
    await_connection()
    link.black_hole()


def answers_lost(link: TcpProxy) -> None:
    await_connection()
    link.black_hole("to_client")


FAULTS = [down_at_start, silent_at_start, cut_later, silent_later, answers_lost]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_try_ends_at_once_whatever_is_broken(
    short_times: TcpProxy, fault: Callable[[TcpProxy], None]
) -> None:
    fault(short_times)
    with within(OVERRUN), pytest.raises(LockUnavailable):
        zk_lock("key").acquire(blocking=False)


@pytest.mark.parametrize(
    ("fault", "timeout"), [*((fault, None) for fault in FAULTS), (cut_later, 0.5), (cut_later, 9)]
)
def test_an_acquire_ends_by_its_timeout_or_that_of_the_connection_whatever_is_broken(
    short_times: TcpProxy, fault: Callable[[TcpProxy], None], timeout: float | None
) -> None:
    fault(short_times)
    limit = min(CONNECT_TIMEOUT, timeout or CONNECT_TIMEOUT)
    with within(limit + OVERRUN), pytest.raises(LockUnavailable) as raised:
        zk_lock("key").acquire(timeout=timeout)
    assert raised.value.key == "key"
    assert raised.value.using == "default"
    assert short_times.address in str(raised.value)


def test_after_the_first_error_later_calls_fail_at_once_until_the_next_contact(
    short_times: TcpProxy,
) -> None:
    cut_later(short_times)
    with pytest.raises(LockUnavailable):
        zk_lock("key").acquire()
    with within(CONNECT_TIMEOUT / 2):
        for timeout in (0, 1, 9, None):
            with pytest.raises(LockUnavailable, match="There is no connection to"):
                zk_lock("key").acquire(timeout=timeout)
    short_times.pass_through()
    eventually(lambda: session_for().connected, PATIENCE)
    with zk_lock("key"):
        pass


@pytest.mark.usefixtures("as_shipped")
def test_a_port_nobody_listens_on_is_unavailable(two_sessions: Settings) -> None:
    (port,) = free_ports(1)
    assert_unavailable(two_sessions, port)


@pytest.mark.usefixtures("as_shipped")
def test_a_listener_that_never_accepts_is_unavailable(two_sessions: Settings) -> None:
    # The kernel completes the connection, and nobody ever reads what is sent.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert_unavailable(two_sessions, listener.getsockname()[1])


def assert_unavailable(settings: Settings, port: int) -> None:
    hosts = f"127.0.0.1:{port}"
    settings.DISTLOCK = {"default": {"HOSTS": hosts, "CONNECT_TIMEOUT": CONNECT_TIMEOUT}}
    for timeout in (None, 9):
        with within(CONNECT_TIMEOUT + OVERRUN), pytest.raises(LockUnavailable, match=hosts):
            zk_lock("key").acquire(timeout=timeout)
    with within(OVERRUN), pytest.raises(LockUnavailable, match=hosts):
        zk_lock("key").acquire(timeout=0)


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [
        ("127.0.0.1:1", "Connection refused"),
        ("redis://127.0.0.1:1", "to Redis at 127.0.0.1:1: Connection refused"),
        ("nobody.invalid:2181", "no host name in HOSTS can be resolved"),
        ("nobody.invalid:6379", 'Port 6379 is that of Redis: "redis://nobody.invalid:6379"'),
        ("redis://127.0.0.1:2181", "Port 2181 is that of ZooKeeper"),
        ("redis+sentinel://127.0.0.1:1/service/0", "none of the Sentinels answers"),
    ],
)
@pytest.mark.usefixtures("as_shipped")
def test_the_error_says_why_there_is_no_connection(
    two_sessions: Settings, hosts: str, reason: str
) -> None:
    two_sessions.DISTLOCK = {"default": {"HOSTS": hosts, "CONNECT_TIMEOUT": CONNECT_TIMEOUT}}
    with pytest.raises(LockUnavailable) as raised:
        zk_lock("key").acquire()
    assert reason in str(raised.value)
    assert "maxClientCnxns" not in str(raised.value)


@pytest.mark.parametrize("break_link", [TcpProxy.cut, TcpProxy.black_hole])
@pytest.mark.parametrize("timeout", [4, None])
def test_a_wait_in_line_survives_its_server_only_for_so_long(
    tree: Tree,
    short_times: TcpProxy,
    make_owner: MakeOwner,
    break_link: Callable[[TcpProxy], None],
    timeout: float | None,
) -> None:
    holder, waiter = make_owner(), make_owner()
    holder.now(zk_lock("key", using="other").acquire)
    waiting = waiter.submit(zk_lock("key").acquire, timeout=timeout)
    tree.await_line("key", 2)
    break_link(short_times)
    # For ever is as long as the place can live; a silent link is noticed after two thirds of that.
    bearable = timeout or SESSION_TIMEOUT * 5 / 3 + CONNECT_TIMEOUT
    with within(bearable + OVERRUN):
        assert isinstance(waiting.exception(PATIENCE), LockUnavailable)
    holder.now(zk_lock("key", using="other").release)


def test_looking_at_the_line_does_not_hang_either(short_times: TcpProxy) -> None:
    await_connection()
    short_times.black_hole()
    with within(CONNECT_TIMEOUT + OVERRUN), pytest.raises(LockUnavailable):
        zk_lock("key").participants()


def test_verify_tells_silence_from_loss(short_times: TcpProxy, two_sessions: Settings) -> None:
    default = {**two_sessions.DISTLOCK["default"], "SESSION_TIMEOUT": 15}
    two_sessions.DISTLOCK = {**two_sessions.DISTLOCK, "default": default}
    with zk_lock("key") as hold:
        short_times.black_hole()
        with within(0.3 + OVERRUN), pytest.raises(LockUnavailable):
            hold.verify(timeout=0.3)
        assert not hold.lost
        short_times.pass_through()
        hold.verify(timeout=PATIENCE)


@pytest.mark.parametrize("break_link", [TcpProxy.cut, TcpProxy.black_hole])
def test_a_release_does_not_wait_for_the_server(
    short_times: TcpProxy, break_link: Callable[[TcpProxy], None]
) -> None:
    lock = zk_lock("key")
    lock.acquire()
    break_link(short_times)
    with within(OVERRUN):
        lock.release()
    assert not lock.held


def test_connects_within_two_seconds_after_an_outage(short_times: TcpProxy) -> None:
    # Long enough for kazoo's own back-off to have grown beyond two seconds.
    session = await_connection()
    short_times.cut()
    eventually(lambda: not session.connected)
    eventually(lambda: down_for(session) > 5)
    short_times.pass_through()
    with within(2):
        eventually(lambda: session.connected, PATIENCE)
        assert zk_lock("key").acquire(timeout=None)
    zk_lock("key").release()


def down_for(session: Session) -> float:
    return time.monotonic() - (session.disconnected_at or time.monotonic())


def test_the_next_call_after_an_unavailable_one_works(short_times: TcpProxy) -> None:
    short_times.cut()
    with pytest.raises(LockUnavailable):
        zk_lock("key").acquire(timeout=0)
    short_times.pass_through()
    session = session_for()
    eventually(lambda: session.connected)
    with zk_lock("key"):
        assert session_for() is session


@pytest.mark.engines("zookeeper", "redis")
def test_verify_outlives_a_connection_that_is_lost(
    broken_link: TcpProxy, make_owner: MakeOwner
) -> None:
    asking = make_owner()
    with zk_lock("key") as hold:
        session = await_connection()
        broken_link.black_hole()
        answer = asking.submit(hold.verify, timeout=PATIENCE)
        eventually(lambda: session._in_flight, PATIENCE, "a question without an answer")
        broken_link.cut()
        broken_link.pass_through()
        answer.result(PATIENCE)
