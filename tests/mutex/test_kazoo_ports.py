"""kazoo's KazooLockTests, by intent.

Not here, since they are elsewhere: timeouts (`test_timeouts`), the end of a session and of a
connection (`test_recovery`), contenders' names (`test_signals_and_looking`), ordering
(`test_fairness`). kazoo's ``cancel()`` ends a wait from outside; here that is the cancellation of a
task or an exception in the thread (`test_leaks`).
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from kazoo.exceptions import NoNodeError

from distlock import LockLost, NotOwner, zk_lock
from distlock.owner.owner import Owner as LockOwner
from distlock.session.registry import close_sessions, session_for
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection

if TYPE_CHECKING:
    from distlock_chaos.proxy import TcpProxy

pytestmark = pytest.mark.usefixtures("tree")


def test_lock_one(tree: Tree, make_owner: MakeOwner) -> None:
    """A thread takes the lock, keeps it for as long as it likes, and gives it back."""
    lock, owner = zk_lock("key"), make_owner()
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            entered.set()
            leave.wait(PATIENCE)

    held = owner.submit(hold)
    assert entered.wait(PATIENCE)
    assert lock.locked()
    assert not lock.held
    leave.set()
    held.result(PATIENCE)
    tree.await_line("key", 0)


def test_lock(make_owner: MakeOwner) -> None:
    """Many threads with a lock object each are inside one after the other."""
    inside: list[int] = []
    served: list[int] = []

    def take(number: int) -> None:
        with zk_lock("key", timeout=PATIENCE, using=("default", "other")[number % 2]):
            inside.append(number)
            assert inside == [number]
            served.append(number)
            inside.remove(number)

    threads = [make_owner().submit(take, number) for number in range(10)]
    for thread in threads:
        thread.result(PATIENCE)
    assert sorted(served) == list(range(10))


def test_lock_reconnect(tree: Tree, patient_link: TcpProxy, make_owner: MakeOwner) -> None:
    """A waiter whose connection breaks gets the lock when the holder has left."""
    holder, waiter = make_owner(), make_owner()
    holder.now(zk_lock("key", using="other").acquire)
    granted = waiter.submit(zk_lock("key").acquire, timeout=PATIENCE)
    tree.await_line("key", 2)
    patient_link.drop()
    await_connection()
    holder.now(zk_lock("key", using="other").release)
    assert granted.result(PATIENCE)
    waiter.now(zk_lock("key").release)


@pytest.mark.usefixtures("holder")
def test_lock_non_blocking() -> None:
    assert zk_lock("key").acquire(blocking=False) is False
    assert not zk_lock("key").held
    assert zk_lock("free").acquire(blocking=False) is True
    zk_lock("free").release()


def test_lock_fail_first_call(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake on the way in is not swallowed, and the next call works."""

    def fail(*args: object, **options: object) -> bytes:
        raise RuntimeError("a mistake")

    with monkeypatch.context() as patched:
        patched.setattr(LockOwner, "describe", fail)
        with pytest.raises(RuntimeError, match="a mistake"):
            zk_lock("key").acquire()
    assert not zk_lock("key").held
    assert tree.line("key") == []
    with zk_lock("key", timeout=1):
        pass


def test_lock_cancel(tree: Tree, make_owner: MakeOwner) -> None:
    """Who is cancelled while waiting can wait again, and those behind are served."""
    holder, behind = make_owner(), make_owner()
    holder.now(zk_lock("key", using="other").acquire)

    async def cancel_and_wait_again() -> bool:
        lock = zk_lock("key")
        waiting = asyncio.create_task(lock.aacquire(timeout=None))
        await asyncio.to_thread(tree.await_line, "key", 2)
        granted = behind.submit(zk_lock("key", using="other").acquire, timeout=PATIENCE)
        await asyncio.to_thread(tree.await_line, "key", 3)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        holder.submit(zk_lock("key", using="other").release)
        assert await asyncio.wrap_future(granted)
        behind.submit(zk_lock("key", using="other").release)
        assert await lock.aacquire(timeout=PATIENCE)
        await lock.arelease()
        return True

    assert asyncio.run(cancel_and_wait_again())


def test_lock_double_calls() -> None:
    """kazoo's lock is not reentrant and refuses; ours counts, and one release too many is told."""
    lock = zk_lock("key")
    assert lock.acquire()
    assert lock.acquire()
    lock.release()
    lock.release()
    with pytest.raises(NotOwner):
        lock.release()


def test_lock_reacquire(tree: Tree) -> None:
    """An object is as good as new after each release; every hold has a node of its own."""
    lock, paths = zk_lock("key"), []
    for _ in range(5):
        with lock as hold:
            paths.append(hold.path)
            assert tree.line("key")[-1] == hold.path.rpartition("/")[2]
    assert len({path.partition("_c_")[2][:36] for path in paths}) == 5


def test_lock_after_the_session_was_closed(tree: Tree) -> None:
    """kazoo's test of a client that is stopped and started."""
    lock = zk_lock("key")
    lock.acquire()
    number = session_for().id
    close_sessions()
    tree.await_line("key", 0)
    with pytest.raises(LockLost):
        lock.release()
    with lock as hold:
        hold.verify()
        assert session_for().id != number


def test_dirty_state(tree: Tree, make_owner: MakeOwner) -> None:
    """Somebody deletes the node of a waiter: it takes a new place and is granted."""
    holder, waiter = make_owner(), make_owner()
    holder.now(zk_lock("key", using="other").acquire)
    granted = waiter.submit(zk_lock("key").acquire, timeout=PATIENCE)
    head, own = tree.await_line("key", 2)
    path = f"{tree.path('key')}/{own}"
    # The waiter watches it from its first heartbeat on.
    eventually(lambda: path in tree.client.command(b"wchp"), PATIENCE)
    tree.client.delete(path)
    holder.now(zk_lock("key", using="other").release)
    assert granted.result(PATIENCE)
    (new,) = tree.await_line("key", 1)
    assert new not in (head, own)
    waiter.now(zk_lock("key").release)


def test_a_node_that_somebody_else_has_deleted_is_noticed_by_verify(tree: Tree) -> None:
    with pytest.raises(LockLost), zk_lock("key") as hold:  # noqa: PT012
        tree.client.delete(hold.path)
        with pytest.raises(LockLost):
            hold.verify()
        assert hold.lost
    with pytest.raises(NoNodeError):
        tree.client.get(hold.path)


def test_a_dead_node_of_another_process_is_waited_for_until_it_goes(
    tree: Tree, make_owner: MakeOwner
) -> None:
    tree.client.ensure_path(tree.path("key"))
    prefix = f"{tree.path('key')}/_c_{uuid4()}-lock-"
    left_over = tree.client.create(prefix, b"", ephemeral=True, sequence=True)
    waiter = make_owner()
    granted = waiter.submit(zk_lock("key").acquire, timeout=PATIENCE)
    tree.await_line("key", 2)
    tree.await_watches(left_over)
    assert not granted.done()
    tree.client.delete(left_over)
    assert granted.result(PATIENCE)
    waiter.now(zk_lock("key").release)
