"""kazoo's TestSemaphore, by intent.

Where kazoo names holders by an identifier, these tests have the session or the worker's name. Its
``cancel()`` ends a wait from outside; here that is the cancellation of a task, or an exception.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from distlock import LockBusy, NotOwner, zk_semaphore
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.permits import KEY, Permits
from tests.kit.tools import PATIENCE, MakeOwner, await_connection, expire

if TYPE_CHECKING:
    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("permits")


def test_basic() -> None:
    """test_basic, test_reacquire: a permit is taken, given back, and taken again."""
    semaphore = zk_semaphore(KEY, 1)
    for _ in range(2):
        assert semaphore.acquire()
        semaphore.release()


def test_lock_one(make_owner: MakeOwner, permits: Permits) -> None:
    """test_lock_one: with one permit, the second waits for the first."""
    first, entered = zk_semaphore(KEY, 1), threading.Event()
    assert first.acquire()

    def enter() -> None:
        with zk_semaphore(KEY, 1, using="other", timeout=PATIENCE):
            entered.set()

    waiting = make_owner().submit(enter)
    permits.await_head(1)
    assert not entered.is_set()
    first.release()
    waiting.result(PATIENCE)
    assert entered.is_set()


def test_non_blocking(make_owner: MakeOwner) -> None:
    """test_non_blocking: a try is refused when all permits are taken, and the holders are known."""
    one, two, three = make_owner(), make_owner(), make_owner()
    semaphore = zk_semaphore(KEY, 2)
    names = {
        name: worker.now(threading.current_thread).name
        for name, worker in {"one": one, "two": two, "three": three}.items()
    }
    one.now(semaphore.__enter__)
    two.now(semaphore.__enter__)
    with pytest.raises(LockBusy):
        three.now(zk_semaphore(KEY, 2, timeout=0).__enter__)
    holders = {participant.worker for participant in semaphore.participants()}
    assert holders == {names["one"], names["two"]}
    two.now(semaphore.__exit__, None, None, None)
    three.now(semaphore.__enter__)
    holders = {participant.worker for participant in semaphore.participants()}
    assert holders == {names["one"], names["three"]}
    one.now(semaphore.__exit__, None, None, None)
    three.now(semaphore.__exit__, None, None, None)


def test_non_blocking_release() -> None:
    """test_non_blocking_release: what was refused has nothing to release."""
    one, two = zk_semaphore(KEY, 1), zk_semaphore(KEY, 1, using="other")
    assert one.acquire()
    assert not two.acquire(blocking=False)
    one.release()
    with pytest.raises(NotOwner):
        two.release()


def test_holders(make_owner: MakeOwner) -> None:
    """test_holders: anybody may ask who has a permit."""
    owner = make_owner()
    owner.now(zk_semaphore(KEY, 1, using="other").acquire)
    (holder,) = zk_semaphore(KEY, 1).participants()
    assert holder.session_id == session_for("other").id
    assert holder.worker == owner.now(threading.current_thread).name
    zk_semaphore(KEY, 1, using="other").release()


def test_semaphore_cancel(permits: Permits) -> None:
    """test_semaphore_cancel, test_acquire_after_cancelled: a cancelled wait, and one after it."""
    semaphore = zk_semaphore(KEY, 1, using="other")
    assert semaphore.acquire()

    async def wait_and_be_cancelled() -> None:
        waiting = asyncio.create_task(zk_semaphore(KEY, 1).aacquire(timeout=None))
        await asyncio.to_thread(permits.await_head, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.to_thread(permits.await_, 1, 0)
        semaphore.release()
        assert await zk_semaphore(KEY, 1).aacquire(timeout=PATIENCE)
        await zk_semaphore(KEY, 1).arelease()

    asyncio.run(wait_and_be_cancelled())


def test_multiple_acquire_and_release() -> None:
    """test_multiple_acquire_and_release; an acquire here takes one permit more each time."""
    semaphore = zk_semaphore(KEY, 1)
    assert semaphore.acquire()
    assert not semaphore.acquire(timeout=0)
    semaphore.release()
    with pytest.raises(NotOwner):
        semaphore.release()


def test_handle_session_loss(zookeeper: ZooKeeper, make_owner: MakeOwner, permits: Permits) -> None:
    """test_handle_session_loss: a waiter whose session ends gets the permit with its next one."""
    semaphore = zk_semaphore(KEY, 1, using="other")
    assert semaphore.acquire()
    waiting = make_owner().submit(zk_semaphore(KEY, 1).acquire, timeout=2 * PATIENCE)
    permits.await_head(1)
    old = expire(zookeeper.hosts, await_connection())
    eventually(lambda: session_for().id not in (0, old), PATIENCE, "a new session")
    semaphore.release()
    assert waiting.result(PATIENCE)
    (holder,) = zk_semaphore(KEY, 1).participants()
    assert holder.session_id == session_for().id
    zk_semaphore(KEY, 1).release()


def test_inconsistent_max_leases(caplog: pytest.LogCaptureFixture) -> None:
    """test_inconsistent_max_leases and ..._other_data: here a warning; more in `test_limits`."""
    key = (
        f"fresh-{uuid4().hex}"  # it is said once in a process, which runs this test on memory, too
    )
    with zk_semaphore(key, 1), zk_semaphore(key, 7, using="other"):
        assert "limit of 7 here and of 1" in caplog.text


def test_timeout(permits: Permits) -> None:
    """test_timeout: a wait ends by its time, and leaves nothing."""
    with zk_semaphore(KEY, 1):
        assert not zk_semaphore(KEY, 1, using="other").acquire(timeout=0.3)
        permits.await_(1, 0)
