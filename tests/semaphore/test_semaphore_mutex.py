"""The mutex that any thread may release, and Curator's TestInterProcessSemaphoreMutex by intent.

That one runs the tests of TestInterProcessMutexBase, but for the three about reentrancy. Where it
opens two clients in one JVM, these tests use two aliases: two sessions.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

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
from tests.kit.helpers import eventually, raw_client
from tests.kit.permits import KEY, Inside, Permits
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, expire

if TYPE_CHECKING:
    from pytest_django import Settings

    from distlock_chaos.server import ZooKeeper

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


def test_locker(permits: Permits) -> None:
    """testLocker: the block holds in its body and not after it."""
    lock = zk_semaphore_mutex(KEY)
    with lock:
        assert [lock.held, lock.locked()] == [True, True]
    permits.await_(0, 0)
    assert [lock.held, lock.locked()] == [False, False]


def test_waiting_process_killed_server(
    own_zookeeper: ZooKeeper, namespace: str, make_owner: MakeOwner
) -> None:
    """testWaitingProcessKilledServer: the server dies under a holder and a waiter, and is back."""
    (server,) = own_zookeeper.servers
    lock, other = zk_semaphore_mutex(KEY), zk_semaphore_mutex(KEY, using="other")
    with raw_client(own_zookeeper.hosts) as client:
        permits = Permits(Tree(client, namespace))
        assert lock.acquire()
        waiting = make_owner().submit(other.acquire, timeout=2 * PATIENCE)
        permits.await_(2, 1)
        server.kill()
        eventually(lambda: not session_for().connected, PATIENCE)
        assert not waiting.done()
        server.start()
        lock.release()
        assert waiting.result(2 * PATIENCE)
        eventually(lambda: client.connected, PATIENCE)
        permits.await_(1, 0)
        other.release()
        permits.await_(0, 0)


def test_killed_session(zookeeper: ZooKeeper, make_owner: MakeOwner) -> None:
    """testKilledSession: a session ends under a holder, and the waiter comes in."""
    lock, other = zk_semaphore_mutex(KEY), zk_semaphore_mutex(KEY, using="other")
    assert lock.acquire()
    waiting = make_owner().submit(other.acquire, timeout=PATIENCE)
    old = expire(zookeeper.hosts, await_connection())
    eventually(lambda: session_for().id not in (0, old), PATIENCE, "a new session")
    assert waiting.result(PATIENCE)
    with pytest.raises(LockLost):
        lock.release()
    other.release()


def test_container_cleanup(tree: Tree) -> None:
    """testContainerCleanup: the parents of an idle lock are removed, and made again."""
    lock = zk_semaphore_mutex("fresh")
    with lock:
        pass
    eventually(lambda: not tree.client.exists(tree.path("fresh")), 2 * PATIENCE, "no parents")
    with lock:
        assert len(Permits(tree, "fresh").names()) == 1


def test_with_namespace(two_sessions: Settings, tree: Tree, permits: Permits) -> None:
    """testWithNamespace: the nodes are under the namespace, and another one is another lock."""
    elsewhere = {**two_sessions.DISTLOCK["default"], "NAMESPACE": f"{tree.namespace}/elsewhere"}
    two_sessions.DISTLOCK = {"default": two_sessions.DISTLOCK["default"], "other": elsewhere}
    with zk_semaphore_mutex(KEY) as hold, zk_semaphore_mutex(KEY, using="other", timeout=5):
        assert hold.path.startswith(f"{permits.path}/")
        assert len(permits.names()) == 1


def test_2_clients(make_owner: MakeOwner) -> None:
    """test2Clients: two clients take turns, and the second comes in when the first has left."""
    first_in, leave = threading.Event(), threading.Event()
    order: list[str] = []

    def first() -> None:
        with zk_semaphore_mutex(KEY):
            first_in.set()
            assert leave.wait(PATIENCE)
            order.append("first")

    def second() -> None:
        assert first_in.wait(PATIENCE)
        assert not zk_semaphore_mutex(KEY, using="other").acquire(timeout=0)
        leave.set()
        with zk_semaphore_mutex(KEY, using="other", timeout=PATIENCE):
            order.append("second")

    for one in [make_owner().submit(first), make_owner().submit(second)]:
        one.result(2 * PATIENCE)
    assert order == ["first", "second"]
