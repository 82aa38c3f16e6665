"""Steps wait for a connection, and each request has one answer, whatever becomes of it."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError
from kazoo.protocol.serialization import Transaction
from kazoo.security import make_acl

from distlock import LockUnavailable
from distlock.conf import Configuration
from distlock.engine.errors import SessionOver
from distlock.engine.reply import Reply
from distlock.session import guaranteed_delete
from distlock.session.session import Session
from distlock_chaos.ports import free_ports
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually, raw_client
from tests.session.tools import MakeSession, expire


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
    assert "zookeeper" in one.call(one.children, "/", timeout=20, key="")
    assert "this is a bug in distlock" in caplog.text


def test_a_node_is_made_below_one_that_others_have_made_and_keep_to_themselves(
    make_session: MakeSession, zookeeper: ZooKeeper
) -> None:
    one = make_session()
    kept = f"{one.root}/theirs/kept"
    with raw_client(zookeeper.hosts) as client:
        client.ensure_path(kept)
        client.set_acls(f"{one.root}/theirs", [make_acl("world", "anyone", read=True, delete=True)])
        one.call(one.create_containers, f"{kept}/ours", timeout=20, key="")
        assert client.get_children(kept) == ["ours"]
        with pytest.raises(LockUnavailable) as refused:
            one.call(one.create_containers, f"{one.root}/theirs/new/ours", timeout=20, key="")
        assert isinstance(refused.value.__cause__, NoAuthError)


def test_what_follows_from_a_request_that_cannot_be_sent_is_done(make_session: MakeSession) -> None:
    one, done = make_session(session_timeout=40), threading.Event()
    no_bytes: Any = object()
    one.call(one.read, "/", timeout=20, key="")

    def answered(*_: Any) -> None:
        one.write("/", no_bytes, 0, refused)

    def refused(_: Any, error: BaseException | None) -> None:
        assert isinstance(error, TypeError)
        one.soon(done.set)

    one.read("/", answered)
    assert done.wait(10)  # the next ping, and its answer, come later


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
    one.call(one.read, "/", timeout=20, key="")


def test_what_is_sent_without_a_connection_fails_at_once() -> None:
    one = Session(Configuration(hosts=f"127.0.0.1:{free_ports(1)[0]}"))
    found: list[Any] = []
    one.children("/", lambda *outcome: found.append(outcome[1]))
    assert len(found) == 1
    assert isinstance(found[0], Exception)
    one.close()


@pytest.mark.parametrize("kind", ["zookeeper", "redis"])
def test_what_is_queued_in_the_instant_of_a_loss_fails_without_another_connection(
    request: pytest.FixtureRequest, kind: str
) -> None:
    server = request.getfixturevalue(kind)
    port = server.port if kind == "redis" else server.servers[0].port
    with TcpProxy("127.0.0.1", port) as proxy:
        hosts = f"redis://{proxy.address}" if kind == "redis" else proxy.address
        one = Session(Configuration(hosts=hosts))
        eventually(lambda: one.connected)
        proxy.cut()
        eventually(lambda: not one.connected)
        errors: list[BaseException | None] = []
        one.connected = True  # as a thread may have seen it a moment ago
        one.read("/", lambda _, error: errors.append(error))
        one.connected = False
        assert isinstance(eventually(lambda: errors)[0], ConnectionLoss)
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
        one.create_ephemeral(
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


def test_a_list_does_not_count_where_the_write_before_it_was_lost(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two go to two servers when the connection is lost in between."""
    one = make_session()
    submit = one._client.submit

    def lose_writes(call: tuple[Any, Reply], *, first: bool = False) -> None:
        request, reply = call
        if isinstance(request, Transaction):
            reply.set_exception(ConnectionLoss())
        else:
            submit(call, first=first)

    monkeypatch.setattr(one._client, "submit", lose_writes)
    with pytest.raises(LockUnavailable) as lost:
        one.call(partial(one.children, sync=True), "/", timeout=20, key="")
    assert isinstance(lost.value.__cause__, ConnectionLoss)
    assert one.call(one.children, "/", timeout=20, key="")


def test_refused_searches_are_repeated_together(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session()
    orders: list[Any] = []
    refused: list[str] = []

    def refuse(path: str, done: Any, **_: bool) -> None:
        refused.append(path)
        session.soon(partial(done, None, NoAuthError()))

    monkeypatch.setattr(guaranteed_delete, "call_later", lambda _, again: orders.append(again))
    monkeypatch.setattr(session, "children", refuse)
    for number in range(20):
        session.deletes.sweep("/line", str(number))
    assert eventually(lambda: len(session.deletes._refused_searches) == 20)
    orders.pop()()
    assert eventually(lambda: len(refused) == 40)
    assert eventually(lambda: len(session.deletes._refused_searches) == 20)
    assert len(orders) == 1
    session.deletes._refused_searches.clear()


def test_a_refused_search_ends_with_its_session_or_its_caller(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, orders, refused = make_session(), list[Any](), list[str]()

    def refuse(path: str, done: Any, **_: bool) -> None:
        refused.append(path)
        done(None, NoAuthError())

    monkeypatch.setattr(guaranteed_delete, "call_later", lambda _, again: orders.append(again))
    monkeypatch.setattr(session, "children", refuse)
    staying = [True]
    session.deletes.search("/of-a-caller", lambda *_: None, lambda: bool(staying))
    session.deletes.sweep("/of-a-session", "_c_")
    assert eventually(lambda: len(refused) == 2)
    staying.clear()
    session.id += 1
    orders.pop()()
    assert eventually(lambda: not session.deletes._refused_searches)
    session.call(session.read, "/", timeout=20, key="")
    assert sorted(refused) == ["/of-a-caller", "/of-a-session"]
    assert not orders


@pytest.mark.parametrize("engine", ["zookeeper", "redis"])
def test_on_a_long_link_a_list_is_asked_for_early_unless_the_event_tells_it(
    zookeeper: ZooKeeper, engine: str, request: pytest.FixtureRequest
) -> None:
    on_redis = engine == "redis"
    hosts = request.getfixturevalue("redis").new_database() if on_redis else zookeeper.hosts
    one = Session(Configuration(hosts=hosts))
    assert not one.far
    one.note_round_trip(0.002)
    assert one.far is not on_redis
    one.note_round_trip(0.0001)
    assert not one.far
    one.close()
