"""One session per process and alias: how it begins, what was negotiated, what it does not log.

The negotiated timeout, maxClientCnxns, no secrets in logs, and the back-off. Forks are in
`tests/mutex/test_processes`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from pytest_django import Settings

from distlock import LockUnavailable, zk_lock
from distlock.conf import Configuration
from distlock.session import guaranteed_delete, registry
from distlock.session.registry import close_sessions, session_for
from distlock.session.session import Session
from distlock_chaos.ports import free_ports
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.engines import first_then_deep
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import inside, within
from tests.session.tools import MakeSession, ephemeral_node


@pytest.mark.usefixtures("distlock_settings")
def test_threads_that_race_for_the_first_use_get_one_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    class SlowSession(Session):
        def __init__(self, conf: Configuration, *keep: Any) -> None:
            made.append(self)
            with suppress(threading.BrokenBarrierError):
                entered.wait(0.3)  # time for the others to come in, if nothing keeps them out
            super().__init__(conf, *keep)

    together, entered = threading.Barrier(10), threading.Barrier(10)
    monkeypatch.setattr(registry, "Session", SlowSession)
    found: list[Session] = []

    def use() -> None:
        together.wait(10)
        found.append(session_for())

    threads = [threading.Thread(target=use) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(made) == 1
    assert len(found) == 10
    assert set(found) == set(made)


def test_each_alias_has_a_session_of_its_own(
    settings: Settings, zookeeper: ZooKeeper, namespace: str
) -> None:
    options = {"HOSTS": zookeeper.hosts, "NAMESPACE": namespace}
    settings.DISTLOCK = {"default": options, "inventory": {**options, "NAMESPACE": "/inventory"}}
    with zk_lock("k") as one, zk_lock("k", using="inventory") as other:
        assert one.path.startswith(f"{namespace}/k/")
        assert other.path.startswith("/inventory/k/")
    assert session_for() is session_for("default") is not session_for("inventory")


def test_a_first_use_does_not_wait_for_the_server(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": f"127.0.0.1:{free_ports(1)[0]}"}}
    with within(0.5):
        assert not session_for().connected
    assert session_for().id == 0


@pytest.mark.parametrize(("asked", "granted"), [(60, 20), (1, 2), (5, 5)])
def test_the_timeout_that_counts_is_the_one_the_server_granted(
    asked: float, granted: float, make_session: MakeSession
) -> None:
    one = make_session(session_timeout=asked)
    assert eventually(lambda: one.id)
    assert one.timeout == granted


@pytest.mark.parametrize(
    ("asked", "strict", "warns"), [(1, False, True), (1, True, False), (2, False, False)]
)
def test_a_timeout_that_the_servers_have_raised_to_two_ticks_is_warned_of(
    asked: float,
    strict: bool,
    warns: bool,
    make_session: MakeSession,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_session(session_timeout=asked, strict=strict)
    told = [record.getMessage() for record in caplog.records if record.name == "distlock"]
    assert ["Set SESSION_TIMEOUT to 3 or more" in message for message in told] == [True] * warns


def test_a_chroot_comes_before_the_namespace(
    make_session: MakeSession, zookeeper: ZooKeeper
) -> None:
    one = make_session(hosts=f"{zookeeper.hosts}/shop", namespace="/locks")
    assert one.root == "/shop/locks"


def test_tries_to_reconnect_come_at_least_once_a_second() -> None:
    """kazoo's own back-off grows to an hour."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        one = Session(Configuration(hosts=f"127.0.0.1:{listener.getsockname()[1]}"))
        for _ in range(9):
            with within(1.3):
                connection, _ = listener.accept()
            connection.close()
        one.close()


def test_a_server_with_no_connection_to_spare_is_named_as_a_cause(settings: Settings) -> None:
    """It closes the connection without a word, so the message has to name the limit."""
    with ZooKeeper(config={"maxClientCnxns": "1"}) as crowded, raw_client(crowded.hosts):
        settings.DISTLOCK = {"default": {"HOSTS": crowded.hosts, "CONNECT_TIMEOUT": 0.5}}
        with pytest.raises(LockUnavailable, match=r"maxClientCnxns \(60 per address by default\)"):
            zk_lock("k").acquire()
        close_sessions()


# --- the end of a session ------------------------------------------------------------------------
# Calls are bounded. Orderly ends of processes are in `tests/mutex/test_processes`.


def test_a_close_into_a_black_hole_takes_about_a_second(
    make_session: MakeSession, zookeeper: ZooKeeper
) -> None:
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        one = make_session(hosts=proxy.address)
        proxy.black_hole()
        with within(2):
            one.close()
        assert one.over


def test_a_close_without_a_connection_does_not_wait() -> None:
    one = Session(Configuration(hosts=f"127.0.0.1:{free_ports(1)[0]}"))
    with within(2):
        one.close()
        one.close()
    assert one.over


def test_a_close_while_it_connects_ends_the_session(zookeeper: ZooKeeper) -> None:
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        proxy.delay(0.2)
        one = Session(Configuration(hosts=proxy.address))
        eventually(lambda: proxy.connections)
        assert not one.id
        one.close()
        eventually(lambda: not inside(one)._connection._connection_routine.is_alive())


def test_closed_sessions_leave_no_socket_and_no_thread(make_session: MakeSession) -> None:
    make_session().close()
    eventually(lambda: not named_threads())
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208 - a count
    for _ in range(3):
        one = make_session()
        ephemeral_node(one)
        one.close()
    eventually(lambda: not named_threads())
    assert len(os.listdir("/dev/fd")) <= before  # noqa: PTH208


def named_threads() -> list[str]:
    close_sessions()
    names = [thread.name for thread in threading.enumerate()]
    # These belong to the process and to no session, and stay once a test has needed them.
    of_process = {"distlock-timer", "distlock-history"}
    return [name for name in names if name.startswith("distlock-") and name not in of_process]


def test_changed_settings_end_the_sessions_with_the_old_ones(
    distlock_settings: Settings, zookeeper: ZooKeeper
) -> None:
    with zk_lock("k"):
        before = session_for()
    distlock_settings.DISTLOCK = {"default": {"HOSTS": zookeeper.hosts, "NAMESPACE": "/elsewhere"}}
    assert before.over
    with zk_lock("k") as hold:
        assert hold.path.startswith("/elsewhere/")


# --- the clean-up of idle parents ----------------------------------------------------------------


SECONDS = 0.3


@pytest.fixture
def slow_reaper(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[KazooClient]:
    """A look at the tree of a server that itself removes no container while the test runs."""
    monkeypatch.setattr(guaranteed_delete, "IDLE_PARENT_SECONDS", SECONDS)
    with ZooKeeper(jvm=["-Dznode.container.checkIntervalMs=600000"]) as zookeeper:
        settings.DISTLOCK = {"default": {"HOSTS": zookeeper.hosts, "NAMESPACE": "/shop"}}
        with raw_client(zookeeper.hosts) as client:
            yield client
        close_sessions()


def use(key: str) -> None:
    with zk_lock(key):
        pass


def let_idle(client: KazooClient) -> None:
    """Wait until what idles would have been removed, and with it a container of ours."""
    use("ours")

    def removed() -> bool:
        use("busy")
        return not client.exists("/shop/ours")

    eventually(removed)
    # Each answer comes after those to all requests before it.
    session_for().call(session_for().read, "/", timeout=20, key="")


def test_an_idle_container_is_removed(slow_reaper: KazooClient) -> None:
    let_idle(slow_reaper)
    assert slow_reaper.exists("/shop/busy")


@pytest.mark.parametrize("kind", first_then_deep(["neither", "data", "ACL"]))
def test_a_node_of_somebody_else_stays(slow_reaper: KazooClient, kind: str) -> None:
    slow_reaper.ensure_path("/shop")
    acl = [*OPEN_ACL_UNSAFE, make_digest_acl("them", "secret", all=True)]
    data = b"stock: 42" if kind == "data" else b""
    slow_reaper.create("/shop/theirs", data, acl if kind == "ACL" else None)
    use("theirs")
    let_idle(slow_reaper)
    assert slow_reaper.exists("/shop/theirs")


def test_a_node_that_took_the_place_of_a_container_stays(slow_reaper: KazooClient) -> None:
    use("theirs")
    eventually(lambda: not slow_reaper.get_children("/shop/theirs"))
    slow_reaper.delete("/shop/theirs")
    slow_reaper.create("/shop/theirs", b"stock: 42")
    let_idle(slow_reaper)
    assert slow_reaper.exists("/shop/theirs")
