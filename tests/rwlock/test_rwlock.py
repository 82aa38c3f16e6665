"""Many readers or one writer, in one line, over two sessions."""

from __future__ import annotations

import re

import pytest

from distlock import (
    IncompatiblePeer,
    LockLost,
    Mutex,
    zk_lock,
    zk_rwlock,
)
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, expire

pytestmark = pytest.mark.usefixtures("tree")


def test_a_writer_keeps_everybody_out(make_owner: MakeOwner) -> None:
    other = make_owner()
    with zk_rwlock("key").write:
        for using in ("default", "other"):
            rival = zk_rwlock("key", using=using)
            assert not other.now(rival.read.acquire, timeout=0)
            assert not other.now(rival.write.acquire, timeout=0)
    assert other.now(rival.write.acquire)
    other.now(rival.write.release)


def test_a_reader_enters_again_past_a_queued_writer(tree: Tree, make_owner: MakeOwner) -> None:
    lock, writer = zk_rwlock("key"), make_owner()
    with lock.read:
        writes = writer.submit(lock.write.acquire, timeout=PATIENCE)
        tree.await_line("key", 2)
        assert lock.read.acquire(timeout=0)
        lock.read.release()
        assert not writes.done()
    assert writes.result(PATIENCE)
    writer.now(lock.write.release)


def test_a_writer_reads_and_writes_again_inside(tree: Tree) -> None:
    lock = zk_rwlock("key")
    with lock.write, lock.read, lock.write, lock.read:
        assert (lock.write.held, lock.read.held) == (True, True)
        assert len(tree.line("key")) == 2
    assert (lock.write.held, lock.read.held) == (False, False)


def test_the_nodes_are_named_as_curators(tree: Tree) -> None:
    lock = zk_rwlock("key")
    with lock.read:
        (name,) = tree.line("key")
        assert re.fullmatch(r"_c_[0-9a-f-]{36}-__READ__\d{10}", name)
    with lock.write:
        name = tree.await_line("key", 1)[0]
        assert re.fullmatch(r"_c_[0-9a-f-]{36}-__WRIT__\d{10}", name)


def test_each_side_knows_its_participants_and_its_holder(tree: Tree, make_owner: MakeOwner) -> None:
    lock, there = zk_rwlock("key"), zk_rwlock("key", using="other")
    readers, writer, late = [make_owner(), make_owner()], make_owner(), make_owner()
    assert lock.read.holder() is lock.write.holder() is None
    for reader in readers:
        assert reader.now(there.read.acquire)
    writes = writer.submit(lock.write.acquire, timeout=PATIENCE)
    tree.await_line("key", 3)
    reads = late.submit(lock.read.acquire, timeout=PATIENCE)
    first, second, third, fourth = tree.await_line("key", 4)

    def names(side: Mutex) -> list[str]:
        return [one.path.rpartition("/")[2] for one in side.participants()]

    assert names(lock.read) == [first, second, fourth]
    assert names(lock.write) == [third]
    head = lock.read.holder()
    assert head is not None
    assert head.path.endswith(first)
    assert lock.write.holder() is None  # it waits
    assert lock.write.locked()
    for reader in readers:
        reader.now(there.read.release)
    assert writes.result(PATIENCE)
    eventually(lambda: names(lock.read) == [fourth])
    head = lock.write.holder()
    assert head is not None
    assert head.path.endswith(third)
    assert lock.read.holder() is None
    writer.now(lock.write.release)
    assert reads.result(PATIENCE)
    late.now(lock.read.release)


def test_a_writer_that_reads_holds_both_sides() -> None:
    lock = zk_rwlock("key")
    with lock.write as write, lock.read as read:
        for side, hold in ((lock.write, write), (lock.read, read)):
            holder = side.holder()
            assert holder is not None
            assert holder.path == hold.path


def test_a_mutex_of_the_same_key_excludes_both_and_is_excluded(make_owner: MakeOwner) -> None:
    other, mutex, lock = make_owner(), zk_lock("key"), zk_rwlock("key")
    with mutex:
        assert not other.now(lock.read.acquire, timeout=0)
        assert not other.now(lock.write.acquire, timeout=0)
    for side in (lock.read, lock.write):
        with side:
            assert not other.now(mutex.acquire, timeout=0)


@pytest.mark.parametrize("recipe", ["Lock", "ReadLock", "WriteLock"])
@pytest.mark.parametrize("side", ["read", "write"])
def test_a_kazoo_lock_in_the_line_is_refused(tree: Tree, recipe: str, side: str) -> None:
    lock: Mutex = getattr(zk_rwlock("key"), side)
    with (
        getattr(tree.client, recipe)(tree.path("key"), "a kazoo client"),
        pytest.raises(IncompatiblePeer),
    ):
        lock.acquire(timeout=2)
    assert not lock.held
    tree.await_line("key", 0)


def test_a_reader_whose_session_has_expired_has_lost_its_hold(
    tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    writer, there = make_owner(), zk_rwlock("key", using="other")
    with pytest.raises(LockLost), zk_rwlock("key").read as hold:  # noqa: PT012
        writes = writer.submit(there.write.acquire, timeout=PATIENCE)
        tree.await_line("key", 2)
        expire(zookeeper.hosts, session_for())
        assert writes.result(PATIENCE)
        eventually(lambda: hold.lost, PATIENCE)
    writer.now(there.write.release)


def test_a_lock_and_its_sides_say_what_they_are() -> None:
    lock = zk_rwlock("key", using="other")
    assert repr(lock) == "zk_rwlock('key', using='other')"
    assert repr(lock.read) == "zk_rwlock('key', using='other').read"
    assert repr(lock.write) == "zk_rwlock('key', using='other').write"
