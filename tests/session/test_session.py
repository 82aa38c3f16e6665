"""One session per process and alias: how it begins, what was negotiated, what it does not log.

The negotiated timeout, maxClientCnxns, no secrets in logs, and the back-off. Forks are in
`tests/mutex/test_processes`.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

import pytest
from pytest_django import Settings

from distlock import LockUnavailable, zk_lock
from distlock.conf import Configuration
from distlock.session import registry
from distlock.session.registry import close_sessions, session_for
from distlock.session.session import Session
from distlock_chaos.ports import free_ports
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import within
from tests.session.tools import MakeSession


@pytest.mark.usefixtures("distlock_settings")
def test_threads_that_race_for_the_first_use_get_one_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    class SlowSession(Session):
        def __init__(self, conf: Configuration, *keep: Any) -> None:
            made.append(self)
            with suppress(threading.BrokenBarrierError):
                inside.wait(0.3)  # time for the others to come in, if nothing keeps them out
            super().__init__(conf, *keep)

    together, inside = threading.Barrier(10), threading.Barrier(10)
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
