"""Curator's TestInterProcessMutexBase and TestInterProcessMutex, by intent.

Where Curator opens two clients in one JVM, these tests use two aliases: two sessions.
testRevoking is in ``tests/revocation``, testPersistentLock in ``tests/lease``.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from distlock import LockLost, zk_lock
from distlock.session.registry import session_for
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import PATIENCE, MakeOwner, Tree, expire

if TYPE_CHECKING:
    from pytest_django import Settings

    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("tree")


def test_locker() -> None:
    """The block holds in its body and not after it."""
    lock = zk_lock("key")
    with lock:
        assert lock.held
        assert lock.locked()
    assert not zk_lock("key").held
    eventually(lambda: not lock.locked())


def test_reentrant(tree: Tree) -> None:
    """Functions that all take the lock call each other."""
    lock, depth = zk_lock("key", timeout=2), []

    def foo() -> None:
        with lock:
            depth.append(1)
            bar()

    def bar() -> None:
        with lock:
            depth.append(2)
            baz()

    def baz() -> None:
        with zk_lock("key", timeout=2):
            depth.append(3)
            assert len(tree.line("key")) == 1

    foo()
    assert depth == [1, 2, 3]
    assert not lock.held


def test_reentrant_2_threads(make_owner: MakeOwner) -> None:
    """Two threads, each of which goes in and in again, while the other waits."""
    lock, inside = zk_lock("key", timeout=PATIENCE), []

    def go_in_and_in_again(name: str) -> None:
        for _ in range(10):
            with lock:
                inside.append(name)
                with lock:
                    assert inside == [name]
                assert lock.held
                inside.remove(name)

    threads = [make_owner().submit(go_in_and_in_again, name) for name in "ab"]
    for thread in threads:
        thread.result(PATIENCE)


def test_reentrant_single_lock(make_owner: MakeOwner) -> None:
    """Ten threads share one lock object; one at a time is inside, at each depth."""
    lock, inside, together = zk_lock("key", timeout=PATIENCE), [], threading.Barrier(10)

    def take() -> None:
        together.wait(PATIENCE)
        for depth in range(3):
            assert lock.acquire()
            inside.append(threading.get_ident())
            assert set(inside) == {threading.get_ident()}
            assert len(inside) == depth + 1
        for _ in range(3):
            inside.pop()
            lock.release()

    threads = [make_owner().submit(take) for _ in range(10)]
    for thread in threads:
        thread.result(PATIENCE)
    assert not inside


def test_2_clients(tree: Tree, make_owner: MakeOwner) -> None:
    """Two clients take the lock in turn; the other is not in before the one is out."""
    owners = {"default": make_owner(), "other": make_owner()}
    assert owners["default"].now(zk_lock("key").acquire)
    for using, rival in [("default", "other"), ("other", "default")] * 3:
        granted = owners[rival].submit(zk_lock("key", using=rival).acquire, timeout=PATIENCE)
        tree.await_line("key", 2)
        assert not granted.done()
        owners[using].now(zk_lock("key", using=using).release)
        assert granted.result(PATIENCE)
    owners["default"].now(zk_lock("key").release)


def test_with_namespace(two_sessions: Settings, zookeeper: ZooKeeper, tree: Tree) -> None:
    """The namespace and the chroot of HOSTS are part of the path of a lock."""
    default = two_sessions.DISTLOCK["default"]
    below = {**default, "NAMESPACE": f"{tree.namespace}/below"}
    chroot = {**default, "HOSTS": f"{zookeeper.hosts}{tree.namespace}", "NAMESPACE": "/below"}
    two_sessions.DISTLOCK = {"default": default, "below": below, "chroot": chroot}
    with zk_lock("key"), zk_lock("key", using="below") as hold:
        assert hold.path.startswith(f"{tree.namespace}/below/key/")
        assert len(tree.children(f"{tree.namespace}/below/key")) == 1
        assert len(tree.children(f"{tree.namespace}/key")) == 1
        assert not zk_lock("key", using="chroot").acquire(timeout=0)
    assert zk_lock("key", using="chroot").acquire(timeout=2)
    zk_lock("key", using="chroot").release()


def test_container_cleanup(tree: Tree, make_owner: MakeOwner) -> None:
    """The server removes the lock's parent after many users in turn have left it."""

    def use() -> None:
        with zk_lock("key", timeout=PATIENCE):
            pass

    users = [make_owner().submit(use) for _ in range(10)]
    for user in users:
        user.result(PATIENCE)
    eventually(lambda: "key" not in tree.children(tree.namespace), PATIENCE)


def test_killed_session(tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner) -> None:
    """The session of the holder and of the waiter expires: the waiter is granted after all."""
    lock, waiter = zk_lock("key"), make_owner()
    lock.acquire()
    granted = waiter.submit(lock.acquire, timeout=PATIENCE)
    tree.await_line("key", 2)
    expire(zookeeper.hosts, session_for())
    assert granted.result(PATIENCE)
    with pytest.raises(LockLost):
        lock.release()
    assert waiter.now(lambda: lock.held)
    assert len(tree.line("key")) == 1
    waiter.now(lock.release)


def test_waiting_process_killed_server(
    own_zookeeper: ZooKeeper, namespace: str, make_owner: MakeOwner
) -> None:
    """The server dies under a holder and a waiter and comes back: the waiter is served."""
    (server,) = own_zookeeper.servers
    holder, waiter = make_owner(), make_owner()
    lock, other = zk_lock("key"), zk_lock("key", using="other")
    with raw_client(own_zookeeper.hosts) as client:
        tree = Tree(client, namespace)
        holder.now(lock.acquire)
        granted = waiter.submit(other.acquire, timeout=PATIENCE)
        tree.await_line("key", 2)
        server.kill()
        eventually(lambda: not session_for().connected)
        assert not granted.done()
        server.start()
        holder.now(lock.release)
        assert granted.result(PATIENCE)
        eventually(lambda: client.connected, PATIENCE)
        assert len(tree.await_line("key", 1)) == 1
        waiter.now(other.release)
        tree.await_line("key", 0)
