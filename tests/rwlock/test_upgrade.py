"""Who waits for what it holds itself is told at once, and keeps what it has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.db import transaction

from distlock import DeadlockDetected, LockInTransaction, LockLost, zk_lock, zk_rwlock
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Tree, expire

pytestmark = pytest.mark.usefixtures("tree")


@pytest.mark.parametrize("how", [{"timeout": 5}, {"timeout": 0}, {"blocking": False}], ids=str)
def test_a_reader_cannot_begin_to_write(tree: Tree, how: dict[str, Any]) -> None:
    lock = zk_rwlock("key", using="other")
    with lock.read as hold:
        before = tree.client.get(tree.path("key"))[1].cversion
        with pytest.raises(DeadlockDetected) as refused:
            zk_rwlock("key", using="other").write.acquire(**how)
        assert tree.client.get(tree.path("key"))[1].cversion == before  # nothing was sent
        assert not lock.write.held
        hold.verify()
    assert (refused.value.key, refused.value.using, refused.value.cycle) == ("key", "other", ())
    assert "take the write lock from the start" in str(refused.value)
    with lock.write:
        pass


def test_a_block_and_a_task_are_told_as_well() -> None:
    lock = zk_rwlock("key")
    with lock.read, pytest.raises(DeadlockDetected), lock.write:
        pass

    async def upgrade() -> None:
        async with lock.read:
            with pytest.raises(DeadlockDetected):
                await lock.write.aacquire(timeout=PATIENCE)
            with pytest.raises(DeadlockDetected):
                async with lock.write:
                    pass

    asyncio.run(upgrade())


def test_a_reader_that_was_a_writer_cannot_write_again(tree: Tree) -> None:
    lock = zk_rwlock("key")
    lock.write.acquire()
    lock.read.acquire()
    assert lock.write.acquire(timeout=0)  # not yet: it still is a writer
    lock.write.release()
    lock.write.release()
    with pytest.raises(DeadlockDetected):
        lock.write.acquire()
    lock.read.release()
    tree.await_line("key", 0)


@pytest.mark.parametrize("side", ["read", "write"])
def test_a_mutex_of_the_same_key_is_in_the_way_of_its_own_holder(side: str) -> None:
    """Two locks on one path in one owner."""
    with (
        zk_lock("key") as hold,
        pytest.raises(DeadlockDetected, match="of the same key"),
    ):
        getattr(zk_rwlock("key"), side).acquire(timeout=PATIENCE)
    assert hold.released


@pytest.mark.parametrize("side", ["read", "write"])
def test_its_holder_is_in_the_way_of_a_mutex_of_the_same_key(side: str) -> None:
    with (
        getattr(zk_rwlock("key"), side) as hold,
        pytest.raises(DeadlockDetected, match="of the same key"),
    ):
        zk_lock("key").acquire(timeout=PATIENCE)
    assert hold.released


@pytest.mark.django_db
def test_reading_inside_a_write_lock_is_no_first_acquire_in_a_transaction() -> None:
    lock = zk_rwlock("key")
    with lock.write, transaction.atomic(), lock.read as hold:
        hold.verify()
    with transaction.atomic(), pytest.raises(LockInTransaction):
        lock.read.acquire()


def test_a_lost_read_lock_has_to_be_left_before_writing(zookeeper: ZooKeeper) -> None:
    lock = zk_rwlock("key")
    with pytest.raises(LockLost), lock.read as hold:  # noqa: PT012
        expire(zookeeper.hosts, session_for())
        eventually(lambda: hold.lost, PATIENCE)
        with pytest.raises(LockLost) as lost:
            lock.write.acquire()
        assert lost.value.hold is hold
    with lock.write:
        pass
