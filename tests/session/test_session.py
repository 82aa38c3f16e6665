"""One session per process and alias: how it begins, what was negotiated, how it ends.

PITFALLS 20, 25c (the negotiated timeout), 25g (maxClientCnxns), 25h (secrets in logs), 6, 25f
(back-off), 22 (bounded calls). Forks and orderly ends of processes: `tests/mutex/test_processes`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoAuthError
from kazoo.protocol.serialization import Sync
from kazoo.security import make_acl

from distlock import LockUnavailable, zk_lock
from distlock.conf import Configuration
from distlock.engine.client import Reply, SessionOver
from distlock.session import registry
from distlock.session.registry import close_sessions, session_for
from distlock.session.session import Session
from distlock.testing.ports import free_ports
from distlock.testing.proxy import TcpProxy
from distlock.testing.server import ZooKeeper
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django import Settings

    from distlock.engine.client import Done

    MakeSession = Callable[..., Session]


@pytest.fixture
def make_session(zookeeper: ZooKeeper, namespace: str) -> Iterator[MakeSession]:
    """Makes connected sessions of their own with the given settings; ends them after the test."""
    made: list[Session] = []

    def make(**options: Any) -> Session:
        defaults: dict[str, Any] = {
            "hosts": zookeeper.hosts,
            "namespace": namespace,
            "session_timeout": 4,
        }
        made.append(Session(Configuration(**(defaults | options))))
        eventually(lambda: made[-1].connected)
        return made[-1]

    yield make
    for one in made:
        one.close()


def ephemeral_node(one: Session) -> tuple[str, Any]:
    """Create the node of a contender and return its path and stat."""
    one.ask(one.create_containers, one.root).result(20)

    def create(done: Done) -> None:
        one.create_contender(f"{one.root}/n-", b"", done, lambda *_: None)

    path, stat = one.ask(create).result(20)
    return path, stat


@pytest.mark.usefixtures("distlock_settings")
def test_threads_that_race_for_the_first_use_get_one_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    class SlowSession(Session):
        def __init__(self, conf: Configuration) -> None:
            made.append(self)
            with suppress(threading.BrokenBarrierError):
                inside.wait(0.3)  # time for the others to come in, if nothing keeps them out
            super().__init__(conf)

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


def test_a_list_does_not_count_where_the_sync_before_it_was_lost(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two go to two servers when the connection is lost in between."""
    one = make_session()
    submit = one._client.submit

    def lose_syncs(call: tuple[Any, Reply], *, first: bool = False) -> None:
        request, reply = call
        if isinstance(request, Sync):
            reply.set_exception(ConnectionLoss())
        else:
            submit(call, first=first)

    monkeypatch.setattr(one._client, "submit", lose_syncs)
    with pytest.raises(ConnectionLoss):
        one.ask(partial(one.children, sync=True), "/").result(20)
    assert one.ask(one.children, "/").result(20)


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


def test_before_the_first_connection_the_timeout_is_the_one_asked_for() -> None:
    one = Session(Configuration(hosts=f"127.0.0.1:{free_ports(1)[0]}", session_timeout=7))
    assert one.timeout == 7
    one.close()


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


def test_an_expired_session_is_followed_by_another_in_the_same_object(
    make_session: MakeSession, zookeeper: ZooKeeper
) -> None:
    one = make_session()
    before = one.id
    expire(one, zookeeper)
    eventually(lambda: one.connected and one.id not in {0, before})
    assert not one.over


def expire(one: Session, zookeeper: ZooKeeper) -> None:
    """End a session on the server: a second client takes it over and closes it."""
    thief = KazooClient(zookeeper.hosts, client_id=one._client.client_id)
    thief.start(timeout=10)
    thief.stop()
    thief.close()


# --- steps and answers ---------------------------------------------------------------------------


def test_steps_wait_for_the_connection_in_their_order(zookeeper: ZooKeeper) -> None:
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        proxy.cut()
        one = Session(Configuration(hosts=proxy.address))
        done: list[int] = []
        for number in range(5):
            one.when_connected(lambda number=number: done.append(number))  # type: ignore[misc]
        assert done == []
        proxy.restore()
        assert eventually(lambda: len(done) == 5)
        assert done == [0, 1, 2, 3, 4]
        one.close()


def test_a_step_that_fails_harms_no_other(
    make_session: MakeSession, caplog: pytest.LogCaptureFixture
) -> None:
    one = make_session()

    def fail(*_: Any) -> None:
        raise RuntimeError("a mistake of ours")

    one.children("/", fail)
    assert "zookeeper" in one.ask(one.children, "/").result(20)
    assert "this is a bug in distlock" in caplog.text


def test_a_node_is_made_below_one_that_others_have_made_and_keep_to_themselves(
    make_session: MakeSession, zookeeper: ZooKeeper
) -> None:
    one = make_session()
    kept = f"{one.root}/theirs/kept"
    with raw_client(zookeeper.hosts) as client:
        client.ensure_path(kept)
        client.set_acls(f"{one.root}/theirs", [make_acl("world", "anyone", read=True, delete=True)])
        one.ask(one.create_containers, f"{kept}/ours").result(20)
        assert client.get_children(kept) == ["ours"]
        with pytest.raises(NoAuthError):
            one.ask(one.create_containers, f"{one.root}/theirs/new/ours").result(20)


def test_what_follows_from_a_request_that_cannot_be_sent_is_done(make_session: MakeSession) -> None:
    one, done = make_session(session_timeout=40), threading.Event()
    no_bytes: Any = object()
    one.ask(one.read, "/").result(20)

    def answered(*_: Any) -> None:
        one.write("/", no_bytes, 0, refused)

    def refused(_: Any, error: BaseException | None) -> None:
        assert isinstance(error, TypeError)
        one.soon(done.set)

    one.read("/", answered)
    assert done.wait(5)  # the next ping, and its answer, come later


def test_a_burst_of_requests_neither_blocks_nor_jams_the_connection(
    make_session: MakeSession,
) -> None:
    """kazoo is woken by a byte for each request, and some 280 of them fill its pipe."""
    one = make_session(session_timeout=20)
    busy, go_on, sent = threading.Event(), threading.Event(), threading.Event()
    answers: list[BaseException | None] = []

    def burst() -> None:
        for _ in range(1000):
            one.read("/", lambda _, error: answers.append(error))

    def keep_the_connection_thread(*_: Any) -> None:
        busy.set()
        go_on.wait(20)
        burst()  # on the connection thread, as completions do

    def others() -> None:
        burst()
        sent.set()

    one.read("/", keep_the_connection_thread)
    assert busy.wait(20)
    threading.Thread(target=others, daemon=True).start()
    assert sent.wait(20)
    go_on.set()
    eventually(lambda: len(answers) == 2000, 20)
    assert not any(answers)
    one.ask(one.read, "/").result(20)


def test_what_is_sent_without_a_connection_fails_at_once() -> None:
    one = Session(Configuration(hosts=f"127.0.0.1:{free_ports(1)[0]}"))
    found: list[Any] = []
    one.children("/", lambda *outcome: found.append(outcome[1]))
    assert len(found) == 1
    assert isinstance(found[0], Exception)
    one.close()


def test_a_request_that_kazoo_lost_fails_with_the_next_session(
    make_session: MakeSession, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is queued in the instant in which a session ends falls between kazoo's two queues."""
    one = make_session()
    found: list[Any] = []
    lost: list[Any] = []
    orphans: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(one._client, "submit", lambda call, **_: lost.append(call[1]))
        one.create_contender(
            f"{one.root}/n-", b"", lambda *outcome: found.append(outcome[1]), orphans.append
        )
    assert len(lost) == 1
    assert found == []
    expire(one, zookeeper)
    eventually(lambda: found)
    assert type(found[0]) is SessionOver
    lost[0].settle(("path", "stat"), None)
    assert orphans == [("path", "stat")]
    assert len(found) == 1


# --- the end -------------------------------------------------------------------------------------


def test_a_close_frees_what_the_session_held_at_once(
    make_session: MakeSession, zookeeper: ZooKeeper
) -> None:
    one = make_session(session_timeout=20)
    path, _ = ephemeral_node(one)
    with raw_client(zookeeper.hosts) as client:
        assert client.exists(path)
        one.close()
        eventually(lambda: not client.exists(path), timeout=10)
    assert one.over


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
        eventually(lambda: not one._client._connection._connection_routine.is_alive(), 5)


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
    # The process's one alarm belongs to no session, and stays once a test has set it.
    return [name for name in names if name.startswith("distlock-") and name != "distlock-timer"]


@pytest.mark.usefixtures("distlock_settings")
def test_after_a_close_the_next_use_opens_another_session() -> None:
    before = session_for()
    close_sessions()
    assert before.over
    with zk_lock("k") as hold:
        hold.verify()
    assert session_for() is not before


def test_changed_settings_end_the_sessions_with_the_old_ones(
    distlock_settings: Settings, zookeeper: ZooKeeper
) -> None:
    with zk_lock("k"):
        before = session_for()
    distlock_settings.DISTLOCK = {"default": {"HOSTS": zookeeper.hosts, "NAMESPACE": "/elsewhere"}}
    assert before.over
    with zk_lock("k") as hold:
        assert hold.path.startswith("/elsewhere/")


def test_a_server_with_no_connection_to_spare_is_named_as_a_cause(settings: Settings) -> None:
    """It closes the connection without a word, so the message has to name the limit."""
    with ZooKeeper(config={"maxClientCnxns": "1"}) as crowded, raw_client(crowded.hosts):
        settings.DISTLOCK = {"default": {"HOSTS": crowded.hosts, "CONNECT_TIMEOUT": 0.5}}
        with pytest.raises(LockUnavailable, match=r"maxClientCnxns \(60 per address by default\)"):
            zk_lock("k").acquire()
        close_sessions()


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG, 1])
def test_no_secret_is_ever_logged(
    level: int, make_session: MakeSession, zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has the id and the password of a session can take it over, locks and all."""
    caplog.set_level(level)
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        one = make_session(hosts=proxy.address, auth=(("digest", "shop:s3cr3t"),))
        _, password = one._client.client_id
        proxy.cut()
        eventually(lambda: not one.connected)
        proxy.restore()
        eventually(lambda: one.connected)
        one.close()
    shown = [text for text in ("s3cr3t", repr(bytes(password))) if text in caplog.text]
    assert shown == []
