"""Watches are shared by a process and taken back; a delete is done for certain.

A delete that cannot be sent; removeWatches removes all watches on a path of the connection, so it
is sent only when nobody else needs them; watches are gone after a disconnect.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from threading import get_ident
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from distlock.conf import Configuration
from distlock.engine.errors import NoNode
from distlock.session.session import Session
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import inside


@pytest.fixture
def proxy(zookeeper: ZooKeeper) -> Iterator[TcpProxy]:
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        yield proxy


@pytest.fixture
def one(proxy: TcpProxy, namespace: str) -> Iterator[Session]:
    """A session over a link that can be broken."""
    one = Session(Configuration(hosts=proxy.address, namespace=namespace, session_timeout=4))
    one.call(one.create_containers, namespace, timeout=20, key="")
    yield one
    one.close()


@pytest.fixture
def client(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    with raw_client(zookeeper.hosts) as client:
        yield client


@pytest.fixture
def node(client: KazooClient, one: Session) -> str:
    return str(client.create(f"{one.root}/node", b"", makepath=True))


class Watcher:
    """One who watches; what it was told is in `told`."""

    def __init__(self, one: Session, path: str) -> None:
        self.told: list[bool] = []
        self._one = one
        self._path = path

    def changed(self, deleted: bool) -> None:
        self.told.append(deleted)

    def watch(self) -> Any:
        """Watch, and return what the node says."""
        return self._one.call(
            partial(self._one.watch, self._path, self.changed), timeout=20, key=""
        )

    def unwatch(self) -> None:
        self._one.unwatch(self._path, self.changed)


def watched(zookeeper: ZooKeeper, one: Session, path: str) -> bool:
    """Whether the server has a watch of this session on `path`."""
    answer = zookeeper.servers[0].command("wchp")
    _, found, sessions = answer.partition(f"{path}\n")
    return bool(found) and f"0x{one.id:x}" in sessions.split("\n/")[0]


def test_a_node_that_is_not_there_cannot_be_watched_and_leaves_nothing(
    zookeeper: ZooKeeper, one: Session
) -> None:
    """CURATOR-107: `exists` would leave a watch on it."""
    watcher = Watcher(one, f"{one.root}/missing")
    with pytest.raises(NoNode):
        watcher.watch()
    assert not watched(zookeeper, one, f"{one.root}/missing")
    assert not one.watches.watchers


def test_a_watch_taken_back_is_removed_on_the_server(
    zookeeper: ZooKeeper, client: KazooClient, one: Session, node: str
) -> None:
    watcher = Watcher(one, node)
    watcher.watch()
    assert watched(zookeeper, one, node)
    watcher.unwatch()
    eventually(lambda: not watched(zookeeper, one, node))
    client.delete(node)
    one.call(one.children, "/", timeout=20, key="")
    assert watcher.told == []
    assert not one.watches.watchers
    assert not inside(one)._data_watchers


def test_a_watch_that_another_needs_stays(
    zookeeper: ZooKeeper, client: KazooClient, one: Session, node: str
) -> None:
    leaving, staying = Watcher(one, node), Watcher(one, node)
    leaving.watch()
    staying.watch()
    leaving.unwatch()
    one.call(one.children, "/", timeout=20, key="")
    assert watched(zookeeper, one, node)
    client.delete(node)
    assert eventually(lambda: staying.told) == [True]
    assert leaving.told == []


def test_a_watch_set_while_another_is_taken_back_stays(
    zookeeper: ZooKeeper, client: KazooClient, one: Session, node: str
) -> None:
    first, second = Watcher(one, node), Watcher(one, node)
    first.watch()
    first.unwatch()
    second.watch()
    assert watched(zookeeper, one, node)
    client.delete(node)
    assert eventually(lambda: second.told) == [True]


def test_watchers_that_come_and_go_in_many_threads_neither_lose_a_change_nor_leave_a_watch(
    zookeeper: ZooKeeper, client: KazooClient, one: Session, node: str
) -> None:
    staying, over = Watcher(one, node), threading.Event()

    def come_and_go() -> None:
        fleeting = Watcher(one, node)
        while not over.is_set():
            fleeting.watch()
            fleeting.unwatch()

    crowd = [threading.Thread(target=come_and_go) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in crowd:
        thread.start()
    try:
        for changes in range(1, 301):
            staying.watch()
            client.set(node, b"")
            eventually(lambda: len(staying.told) == changes, message="a change")  # noqa: B023
    finally:
        sys.setswitchinterval(interval)
        over.set()
        for thread in crowd:
            thread.join(20)
    eventually(lambda: not watched(zookeeper, one, node))
    eventually(lambda: not one.watches.watchers and not inside(one)._data_watchers)


def test_a_lost_connection_tells_each_watcher(
    proxy: TcpProxy, client: KazooClient, one: Session, node: str
) -> None:
    """kazoo forgets watches then; whoever still wants to know looks and watches again."""
    watchers = [Watcher(one, node), Watcher(one, node)]
    for watcher in watchers:
        watcher.watch()
    proxy.cut()
    for watcher in watchers:
        assert eventually(lambda: watcher.told) == [False]  # noqa: B023
    proxy.restore()
    eventually(lambda: one.connected)
    watchers[0].watch()
    client.delete(node)
    eventually(lambda: watchers[0].told == [False, True])
    assert watchers[1].told == [False]


def test_a_watch_that_gets_no_answer_says_nothing_of_the_link(
    proxy: TcpProxy, one: Session, node: str
) -> None:
    proxy.cut()
    eventually(lambda: not one.connected)
    one.watches._watch((node, False), lambda _: None, lambda *_: None)
    assert one.round_trip == 0.0


# --- guaranteed delete ---------------------------------------------------------------------------


def contender(one: Session) -> str:
    def create(done: Any) -> None:
        one.create_ephemeral(f"{one.root}/n-", b"", done, lambda *_: None, sequential=True)

    path, _ = one.call(create, timeout=20, key="")
    return str(path)


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_a_delete_whose_request_or_reply_is_lost_is_repeated(
    direction: Any, proxy: TcpProxy, client: KazooClient, one: Session
) -> None:
    path = contender(one)
    proxy.black_hole(direction)
    gone = threading.Event()
    one.delete(path, one.id, gone.set)
    if direction == "to_client":
        eventually(lambda: not client.exists(path))
    proxy.drop()
    proxy.restore()
    assert gone.wait(20)
    assert not client.exists(path)
    assert not one.deletes.pending


def test_a_node_of_an_ended_session_is_not_deleted_but_told_to_be_gone(one: Session) -> None:
    told_on: list[int] = []
    one.delete(f"{one.root}/n-0000000000", one.id + 1, lambda: told_on.append(get_ident()))
    assert eventually(lambda: told_on) == [one.watches.thread]
    assert not one.deletes.pending


def test_a_delete_may_be_asked_for_twice(client: KazooClient, one: Session) -> None:
    path = contender(one)
    gone = threading.Event()
    one.delete(path, one.id, gone.set)
    one.delete(path, one.id)
    assert gone.wait(20)
    one.delete(path, one.id)
    eventually(lambda: not one.deletes.pending)
    assert not client.exists(path)


def test_a_delete_that_is_refused_is_repeated_and_reported_once(
    client: KazooClient, one: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """DELETE is checked on the parent's ACL."""
    no_delete = [make_acl("world", "anyone", read=True, create=True, write=True, admin=True)]
    path = contender(one)
    client.set_acls(one.root, no_delete)
    gone = threading.Event()
    one.delete(path, one.id, gone.set)
    eventually(lambda: "needs the DELETE permission on the parent node" in caplog.text)
    one.deletes.send_again()
    one.call(one.read, "/", timeout=20, key="")
    assert client.exists(path)
    assert not gone.is_set()
    client.set_acls(one.root, OPEN_ACL_UNSAFE)
    assert gone.wait(20)
    assert not client.exists(path)
    assert caplog.text.count("could not be deleted") == 1


def test_a_refused_delete_is_repeated_after_a_reconnection(
    proxy: TcpProxy, client: KazooClient, one: Session
) -> None:
    one.deletes._pause = 3600.0
    path = contender(one)
    client.set_acls(one.root, [make_acl("world", "anyone", read=True, create=True, admin=True)])
    gone = threading.Event()
    one.delete(path, one.id, gone.set)
    eventually(lambda: one.deletes._refused)
    client.set_acls(one.root, OPEN_ACL_UNSAFE)
    proxy.drop()
    assert gone.wait(20)
    assert not client.exists(path)
