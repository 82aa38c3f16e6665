"""The mutex that any thread may release, and Curator's TestInterProcessSemaphoreMutex by intent.

That one runs the tests of TestInterProcessMutexBase, but for the three about reentrancy. Where it
opens two clients in one JVM, these tests use two aliases: two sessions.
"""

from __future__ import annotations

import asyncio

import pytest
from django.db import transaction

from distlock import (
    LockBusy,
    LockInTransaction,
    LockLost,
    NotOwner,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.session.registry import session_for
from tests.kit.permits import KEY, Inside
from tests.kit.tools import PATIENCE, MakeOwner

pytestmark = pytest.mark.usefixtures("permits")


def test_it_is_not_reentrant() -> None:
    lock = zk_semaphore_mutex(KEY)
    assert lock.acquire()
    assert not lock.acquire(timeout=0)
    assert not zk_semaphore_mutex(KEY).acquire(timeout=0.05)
    assert lock.held
    lock.release()


def test_another_thread_releases_it(make_owner: MakeOwner) -> None:
    lock = zk_semaphore_mutex(KEY)
    make_owner().now(lock.acquire)
    make_owner().now(lock.release)
    with lock:
        pass


def test_a_release_gives_back_a_lost_permit_before_that_of_another_thread(
    make_owner: MakeOwner,
) -> None:
    first, second = make_owner(), make_owner()
    assert first.now(zk_semaphore_mutex(KEY, max_hold=0.05).acquire)
    lock = zk_semaphore_mutex(KEY)
    assert second.now(lock.acquire, timeout=PATIENCE)
    with pytest.raises(LockLost):
        first.now(lock.release)
    assert not zk_semaphore_mutex(KEY, using="other").acquire(timeout=0.05)
    second.now(lock.release)


def test_a_release_of_what_is_not_held_is_refused() -> None:
    lock = zk_semaphore_mutex(KEY)
    with pytest.raises(NotOwner):
        lock.release()
    with zk_semaphore_mutex(KEY, using="other"), pytest.raises(NotOwner):
        lock.release()
    with lock, pytest.raises(NotOwner):  # the block's own
        lock.release()


def test_it_excludes_the_semaphore_of_its_key() -> None:
    with zk_semaphore_mutex(KEY) as hold:
        assert not zk_semaphore(KEY, 1, using="other").acquire(timeout=0)
        assert not hold.shared
    with zk_semaphore(KEY, 1, using="other"), pytest.raises(LockBusy, match="busy"):
        zk_semaphore_mutex(KEY, timeout=0).__enter__()


def test_tokens_rise_from_holder_to_holder() -> None:
    tokens = []
    for using in ["default", "other"] * 3:
        with zk_semaphore_mutex(KEY, using=using) as hold:
            tokens.append(hold.token)
    assert tokens == sorted(set(tokens))


def test_its_holder_is_known() -> None:
    lock = zk_semaphore_mutex(KEY)
    assert lock.holder() is None
    with lock as hold:
        holder = lock.holder()
        assert holder is not None
        assert holder.path == hold.path
        assert holder.session_id == session_for().id


def test_tasks_take_turns() -> None:
    lock, inside = zk_semaphore_mutex(KEY, timeout=PATIENCE), Inside()

    async def work() -> None:
        async with lock:
            with inside.counted():
                await asyncio.sleep(0)
        if await lock.aacquire():
            with inside.counted():
                await asyncio.sleep(0)
            await lock.arelease()

    async def all_of_them() -> None:
        await asyncio.gather(*(work() for _ in range(10)))

    asyncio.run(all_of_them())
    assert (inside.most, inside.entries) == (1, 20)


@pytest.mark.django_db
def test_it_is_not_taken_in_an_open_transaction() -> None:
    """It would be released before COMMIT."""
    with transaction.atomic():
        with pytest.raises(LockInTransaction):
            zk_semaphore_mutex(KEY).acquire()
        with pytest.raises(LockInTransaction):
            zk_semaphore_mutex(KEY).__enter__()


# --- TestInterProcessMutexBase -------------------------------------------------------------------
