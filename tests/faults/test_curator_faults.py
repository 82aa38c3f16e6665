"""Curator's fault tests, by intent: TestLockInternals, TestFrameworkEdges, TestFailedDeleteManager.

Of TestFrameworkEdges those about create, delete, connect and close. Not ported: the non-guaranteed
delete and the foreground variants, for which there is no counterpart (every delete here is
guaranteed and in the background).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from distlock import LockLost, LockUnavailable, zk_lock
from distlock.engine.errors import NoNode, NotConnected, SessionOver
from distlock.engine.zookeeper.client import Client
from distlock.session.registry import close_sessions, session_for
from distlock.session.session import Session
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import OVERRUN, PATIENCE, MakeOwner, Tree, expire, forgets_all, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_django import Settings

    from distlock.engine.reply import Done
    from distlock_chaos.proxy import TcpProxy
    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.deep

KEY = "key"


def keep_parents(tree: Tree) -> None:
    """Let the lock have parents that nobody removes."""
    with zk_lock(KEY):
        tree.client.create(f"{tree.path(KEY)}/keeps-the-parents", b"")
    tree.await_line(KEY, 0)


def lists_fail(
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    *,
    times: int | None = None,
    before: Callable[[], None] = lambda: None,
) -> list[str]:
    """Let the next lists of children fail, so many times or always; returns which were asked."""
    asked: list[str] = []
    children, create_contender = Session.children, Session.create_contender

    def failing(path: str, done: Done) -> Done:
        asked.append(path)
        if times is not None and len(asked) > times:
            return done

        def failed(_value: Any, _error: BaseException | None) -> None:
            before()
            done(None, error())

        return failed

    def list_(session: Session, path: str, done: Done, *, sync: bool = False) -> None:
        children(session, path, failing(path, done), sync=sync)

    def create(session: Session, path: str, *args: Any, also: Any, **options: Any) -> None:
        request, done = also
        also = request, failing(path.rpartition("/")[0], done)
        create_contender(session, path, *args, also=also, **options)

    monkeypatch.setattr(Session, "children", list_)
    monkeypatch.setattr(Session, "create_contender", create)
    return asked


# --- TestLockInternals ---------------------------------------------------------------------------


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize("error", [NoNode, ValueError])
def test_node_deleted_cleanly_with_faults(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The list of the line fails after the create: no node is left, and the call ends in time."""
    keep_parents(tree)
    asked = lists_fail(monkeypatch, error)
    with within(0.5 + OVERRUN), pytest.raises(LockUnavailable):
        zk_lock(KEY).acquire(timeout=0.5)
    assert asked
    tree.await_line(KEY, 0)
    forgets_all(session_for())


def test_attempt_lock_failed_exception(
    own_zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch, namespace: str
) -> None:
    """Server and session are gone when the list fails: the caller is told, and nothing hangs."""
    (server,) = own_zookeeper.servers
    with raw_client(own_zookeeper.hosts) as client:
        keep_parents(Tree(client, namespace))
    lists_fail(monkeypatch, SessionOver, times=1, before=server.kill)
    with within(2 + OVERRUN), pytest.raises(LockUnavailable):
        zk_lock(KEY).acquire(timeout=2)
    server.start()
    with raw_client(own_zookeeper.hosts) as client:
        Tree(client, namespace).await_line(KEY, 0)


# --- TestFrameworkEdges --------------------------------------------------------------------------


def test_missed_response_on_ephemeral_sequential_create(tree: Tree, patient_link: TcpProxy) -> None:
    """A task's create is done and its reply is lost: that very node is found, used and released."""
    keep_parents(tree)

    async def use() -> str:
        async with zk_lock(KEY, timeout=PATIENCE) as hold:
            return hold.path

    async def lose_the_reply() -> None:
        patient_link.black_hole("to_client")
        using = asyncio.create_task(use())
        (node,) = await asyncio.to_thread(tree.await_line, KEY, 1)
        patient_link.cut()
        patient_link.pass_through()
        assert await using == f"{tree.path(KEY)}/{node}"

    asyncio.run(lose_the_reply())
    tree.await_line(KEY, 0)


@pytest.mark.parametrize("lost", ["request", "response"])
def test_missed_response_on_delete(tree: Tree, patient_link: TcpProxy, lost: str) -> None:
    """A release's delete is lost, or done and its reply is lost: it is repeated in any case."""
    keep_parents(tree)
    session_id = session_for().id
    with zk_lock(KEY):
        patient_link.black_hole("both" if lost == "request" else "to_client")
    tree.await_line(KEY, 1 if lost == "request" else 0)
    assert session_for().deletes.pending
    patient_link.cut()
    patient_link.pass_through()
    tree.await_line(KEY, 0)
    forgets_all(session_for())
    assert session_for().id == session_id
    with zk_lock(KEY, timeout=PATIENCE) as hold:
        hold.verify()


def test_protected_create_node_deletion(
    tree: Tree, patient_link: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller has given up, and the first searches for its node fail too: it is deleted."""
    keep_parents(tree)
    patient_link.black_hole("to_client")
    with pytest.raises(LockUnavailable):
        zk_lock(KEY).acquire(timeout=0.1)
    tree.await_line(KEY, 1)
    session_id = session_for().id
    drop = session_for()._client.drop
    asked = lists_fail(monkeypatch, NotConnected, times=2, before=drop)
    patient_link.cut()
    patient_link.pass_through()
    tree.await_line(KEY, 0)
    assert len(asked) > 2
    assert session_for().id == session_id  # deleted, and not gone with its session
    forgets_all(session_for())


def test_protection_with_killed_session(
    tree: Tree, patient_link: TcpProxy, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    """CURATOR-498: the reply is lost and so is the session: one node is left, of the new one."""
    keep_parents(tree)
    patient_link.black_hole("to_client")
    owner = make_owner()
    granted = owner.submit(zk_lock(KEY).acquire, timeout=PATIENCE)
    stale = tree.await_line(KEY, 1)
    patient_link.cut()
    expired = expire(zookeeper.hosts, session_for())
    patient_link.pass_through()
    assert granted.result(PATIENCE)
    (node,) = tree.await_line(KEY, 1)
    assert node not in stale
    stat = tree.client.get(f"{tree.path(KEY)}/{node}")[1]
    assert stat.ephemeralOwner == session_for().id != expired
    owner.now(zk_lock(KEY).release)


def test_create_containers_for_bad_connect(
    own_zookeeper: ZooKeeper, two_sessions: Settings, make_owner: MakeOwner, namespace: str
) -> None:
    """The first use, with parents to make, begins while the server is down."""
    (server,) = own_zookeeper.servers
    options = {**two_sessions.DISTLOCK["default"], "CONNECT_TIMEOUT": PATIENCE}
    two_sessions.DISTLOCK = {"default": options}
    server.stop()
    owner = make_owner()
    granted = owner.submit(zk_lock(KEY).acquire, timeout=PATIENCE)
    server.start()
    assert granted.result(PATIENCE)
    with raw_client(own_zookeeper.hosts) as client:
        tree = Tree(client, namespace)
        assert len(tree.line(KEY)) == 1
        owner.now(zk_lock(KEY).release)
        tree.await_line(KEY, 0)


@pytest.mark.usefixtures("two_sessions")
def test_quick_close() -> None:
    """A session is closed as soon as it was opened."""
    for _ in range(5):
        session = session_for()
        with within(1.5):
            close_sessions()
        eventually(partial(getattr, session, "over"))


# --- TestFailedDeleteManager ---------------------------------------------------------------------


@pytest.mark.parametrize("chroot", ["", "/chroot"])
def test_lost_session(
    own_zookeeper: ZooKeeper, two_sessions: Settings, namespace: str, chroot: str
) -> None:
    """A release while the server is down returns at once, and the node is gone after its return.

    With a chroot: testWithNamespaceAndLostSession.
    """
    (server,) = own_zookeeper.servers
    with raw_client(own_zookeeper.hosts) as client:
        client.ensure_path(chroot or "/")
        options = {**two_sessions.DISTLOCK["default"], "HOSTS": own_zookeeper.hosts + chroot}
        two_sessions.DISTLOCK = {"default": options}
        tree, lock = Tree(client, chroot + namespace), zk_lock(KEY)
        lock.acquire()
        assert len(tree.line(KEY)) == 1
        session_id = session_for().id
        server.stop()
        eventually(lambda: not session_for().connected)
        with within(OVERRUN):
            lock.release()
        server.start()
        eventually(lambda: client.connected, PATIENCE)
        tree.await_line(KEY, 0)
        assert session_for().id == session_id
        forgets_all(session_for())


def test_guaranteed_delete_on_non_existent_node(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is gone already is deleted once, and not again and again."""
    deletes: list[str] = []
    deletion = Client.deletion

    def record(client: Client, path: str) -> Any:
        deletes.append(path)
        return deletion(client, path)

    monkeypatch.setattr(Client, "deletion", record)
    lock = zk_lock(KEY)
    lock.acquire()
    (name,) = tree.line(KEY)
    path = f"{tree.path(KEY)}/{name}"
    tree.client.delete(path)
    with suppress(LockLost):  # it may have been noticed already
        lock.release()
    forgets_all(session_for())
    assert deletes == [path]
