"""Curator's TestInterProcessReadWriteLock and kazoo's read and write lock cases, by intent.

Where Curator opens two clients in one JVM, these tests use two aliases: two sessions.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from kazoo.exceptions import NoNodeError

from distlock import DeadlockDetected, LockLost, zk_rwlock
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, expire

if TYPE_CHECKING:
    from distlock import Mutex
    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("tree")


# --- Curator -------------------------------------------------------------------------------------


def test_get_participant_nodes(tree: Tree, make_owner: MakeOwner) -> None:
    """testGetParticipantNodes: each side lists its own, 20 readers and 8 writers."""
    lock = zk_rwlock("key")
    readers, writers = ([make_owner() for _ in range(number)] for number in (20, 8))
    for reader in readers:
        assert reader.now(lock.read.acquire)
    writes = [writer.submit(lock.write.acquire, timeout=PATIENCE) for writer in writers]
    tree.await_line("key", 28)
    assert len(lock.read.participants()) == 20
    assert len(lock.write.participants()) == 8
    for reader in readers:
        reader.now(lock.read.release)
    releases = [writer.submit(lock.write.release) for writer in writers]  # each after its acquire
    assert all(write.result(PATIENCE) for write in writes)
    for release in releases:
        release.result(PATIENCE)


def test_that_upgrading_is_disallowed() -> None:
    """testThatUpgradingIsDisallowed: Curator's waits in vain, ours says so at once."""
    lock = zk_rwlock("key")
    lock.read.acquire()
    with pytest.raises(DeadlockDetected):
        lock.write.acquire(timeout=5)
    lock.read.release()


def test_that_downgrading_respects_threads(make_owner: MakeOwner) -> None:
    """testThatDowngradingRespectsThreads: only the writer itself reads beside the writer."""
    lock, t1, t2 = zk_rwlock("key"), make_owner(), make_owner()
    assert t1.now(lock.write.acquire)
    assert not t2.now(lock.read.acquire, timeout=0.5)
    t1.now(lock.write.release)


def test_downgrading() -> None:
    """testDowngrading: write, read, write no more, read no more."""
    lock = zk_rwlock("key")
    lock.write.acquire()
    assert lock.read.acquire(timeout=5)
    lock.write.release()
    assert lock.read.held
    lock.read.release()


def test_contending_downgrading(tree: Tree, make_owner: MakeOwner) -> None:
    """testContendingDowngrading (CURATOR-621): a queued writer waits for the reader as well."""
    lock1, lock2, rival = zk_rwlock("key"), zk_rwlock("key", using="other"), make_owner()
    lock1.write.acquire()
    writes = rival.submit(lock2.write.acquire, timeout=PATIENCE)
    tree.await_line("key", 2)
    assert lock1.read.acquire(timeout=5)
    lock1.write.release()
    (reader,) = lock1.read.participants()
    tree.await_watches(reader.path)  # it has looked, and waits
    assert not writes.done()
    lock1.read.release()
    assert writes.result(PATIENCE)
    rival.now(lock2.write.release)


def test_basic(make_owner: MakeOwner) -> None:
    """testBasic: many readers and few writers mixed; a writer is always alone."""
    guard, inside, most, done = threading.Lock(), Counter[str](), 0, Counter[str]()

    def work(lock: Mutex, side: str) -> None:
        nonlocal most
        assert lock.acquire(timeout=PATIENCE)
        with guard:
            inside[side] += 1
            most = max(most, inside["read"])
            assert not inside["write"] or sum(inside.values()) == 1
        lock.participants()  # takes a while
        with guard:
            inside[side] -= 1
            done[side] += 1
        lock.release()

    def mix(using: str) -> None:
        lock = zk_rwlock("key", using=using)
        for number in range(20):
            if number % 10 == 5:
                work(lock.write, "write")
            else:
                work(lock.read, "read")

    threads = [make_owner().submit(mix, using) for using in ("default", "other") * 4]
    for thread in threads:
        thread.result(4 * PATIENCE)
    assert done == {"read": 8 * 18, "write": 8 * 2}
    assert most > 1


def test_set_node_data(tree: Tree) -> None:
    """testSetNodeData: the nodes carry what is said of their owner."""
    lock = zk_rwlock("key")
    for side in (lock.write, lock.read):
        with side as hold:
            assert json.loads(tree.client.get(hold.path)[0])["owner"]


def test_lock_path(tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner) -> None:
    """testLockPath: the path of a hold names its node also after the session has gone."""
    lock1, lock2, reader = zk_rwlock("key"), zk_rwlock("key", using="other"), make_owner()
    with pytest.raises(LockLost), lock1.write as hold:  # noqa: PT012
        expire(zookeeper.hosts, session_for())
        assert reader.now(lock2.read.acquire, timeout=PATIENCE)
        with pytest.raises(NoNodeError):
            tree.client.get(hold.path)
        eventually(lambda: hold.lost, PATIENCE)
    reader.now(lock2.read.release)


# --- kazoo ---------------------------------------------------------------------------------------


def test_read_lock(make_owner: MakeOwner) -> None:
    """test_read_lock: two clients read, and no writer gets in; ours is reentrant, kazoo's not."""
    first, second, third = make_owner(), make_owner(), make_owner()
    here, there = zk_rwlock("key"), zk_rwlock("key", using="other")
    assert first.now(here.read.acquire, blocking=False)
    assert first.now(here.read.acquire, blocking=False)
    assert second.now(there.read.acquire, blocking=False)
    assert not third.now(there.write.acquire, blocking=False)
    for owner, lock in ((first, here), (first, here), (second, there)):
        owner.now(lock.read.release)


def test_write_lock(make_owner: MakeOwner) -> None:
    """test_write_lock: while one writes, no other client reads."""
    writer, reader = make_owner(), make_owner()
    assert writer.now(zk_rwlock("key").write.acquire, blocking=False)
    assert not reader.now(zk_rwlock("key", using="other").read.acquire, blocking=False)
    writer.now(zk_rwlock("key").write.release)


def test_rw_lock(tree: Tree, make_owner: MakeOwner) -> None:
    """test_rw_lock: behind a writer stand a reader and then a writer, and are served in turn."""
    lock, reader, writer = zk_rwlock("key"), make_owner(), make_owner()
    lock.write.acquire()
    reads = reader.submit(lock.read.acquire, timeout=PATIENCE)
    tree.await_line("key", 2)
    writes = writer.submit(lock.write.acquire, timeout=PATIENCE)
    line = tree.await_line("key", 3)
    lock.write.release()
    assert reads.result(PATIENCE)
    assert tree.await_line("key", 2) == line[1:]
    assert not writes.done()
    reader.now(lock.read.release)
    assert writes.result(PATIENCE)
    assert tree.await_line("key", 1) == line[2:]
    writer.now(lock.write.release)
