"""Somebody else who holds, faults on demand, and what was locked."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from django.db import transaction
from pytest_django import Settings

from distlock import (
    LimitReached,
    LockBusy,
    LockLost,
    LockUnavailable,
    lock_held_long,
    lock_waited_long,
    zk_lease,
    zk_limited,
    zk_lock,
    zk_locked,
    zk_semaphore,
)
from distlock.embedded.tree import Kind, MemoryTree
from distlock.keys.znodes import WORN, in_line
from distlock.session.registry import session_for
from distlock.testing import (
    CapturedLock,
    assert_locked,
    captured_locks,
    expire_session,
    hold,
    hold_permits,
    lose_connection,
)
from tests.kit.helpers import eventually, logged
from tests.kit.tools import PATIENCE
from tests.mutex.test_signals_and_looking import received


@pytest.fixture(autouse=True)
def _nowhere(options: dict[str, Any]) -> None:
    """Before all other fixtures."""


@pytest.mark.usefixtures("memory")
def test_what_lasts_is_told_and_seen(settings: Settings, options: dict[str, Any]) -> None:
    settings.DISTLOCK = {
        "default": {**options, "SESSION_TIMEOUT": 4, "HELD_LONG": 0.1, "WAITED_LONG": 0.1}
    }
    with received(lock_held_long, lock_waited_long) as said, zk_lock("key"):
        waiter = threading.Thread(target=zk_lock("key").acquire, kwargs={"timeout": 1.5})
        waiter.start()
        waiter.join(PATIENCE)
        told = {lock_held_long, lock_waited_long}
        eventually(lambda: {signal for signal, _ in said} == told, PATIENCE)
        eventually(lambda: assert_locked("key")[0].held is not None, PATIENCE)


# --- somebody else -------------------------------------------------------------------------------


@pytest.mark.usefixtures("memory")
def test_somebody_else_holds_a_lock() -> None:
    with hold("key", by="the warehouse"):
        with (
            pytest.raises(LockBusy, match="held by the warehouse") as raised,
            zk_lock("key", timeout=0),
        ):
            pass
        assert str(raised.value.holder) == "the warehouse"
    assert zk_lock("key").acquire(timeout=0)


@pytest.mark.usefixtures("memory")
def test_somebody_else_leaves_and_dies() -> None:
    with hold("key") as other:
        waiter = threading.Thread(target=zk_lock("key").acquire, kwargs={"timeout": None})
        waiter.start()
        other.release()
        waiter.join(PATIENCE)
        assert not waiter.is_alive()
    with hold("another") as other:
        other.die()
        assert zk_lock("another").acquire(timeout=PATIENCE)


@pytest.mark.usefixtures("memory")
def test_a_kind_that_is_none_is_refused() -> None:
    kind: Any = "lease"
    with pytest.raises(ValueError, match="lock, read, write"), hold("key", kind=kind):
        pass


@pytest.mark.usefixtures("distlock_settings")
def test_somebody_else_holds_on_a_real_server() -> None:
    with hold("key", by="elsewhere"):
        assert not zk_lock("key").acquire(timeout=0)
        (holder,) = assert_locked("key")
        assert str(holder.participant) == "elsewhere"
    assert zk_lock("key").acquire(timeout=PATIENCE)
    zk_lock("key").release()


@pytest.mark.usefixtures("memory")
def test_somebody_else_holds_permits(caplog: pytest.LogCaptureFixture) -> None:
    @zk_limited("customer:<pk>", 3, timeout=0)
    def report(pk: int) -> int:
        return pk

    with hold_permits("customer:7", 2, by="the warehouse") as other:
        assert report(7) == 7
        with hold_permits("customer:7", 1), pytest.raises(LimitReached):
            report(7)
        assert [str(one.participant) for one in assert_locked("customer:7")] == [
            "the warehouse"
        ] * 2
        assert not logged(caplog)  # such as that somebody's limit is another
        other.die()
        assert zk_semaphore("customer:7", 3).acquire(leases=3)


# --- blocks --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("memory")
def test_an_attempt_tells() -> None:
    for lock in (zk_lock("key"), zk_semaphore("key", 1)):
        with hold("key"), hold_permits("key", 1), lock.attempt(timeout=0) as held:
            assert held is None
        with lock.attempt(timeout=0) as held:
            assert held is not None


@pytest.mark.usefixtures("memory")
def test_a_busy_lock_raises_an_error_of_ones_own() -> None:
    with (
        hold("key"),
        pytest.raises(BlockingIOError),
        zk_lock("key", timeout=0, busy=BlockingIOError),
    ):
        pass


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("memory")
def test_a_lock_is_kept_until_the_commit() -> None:
    with transaction.atomic():
        with zk_lock("key", until="commit"):
            pass
        assert_locked("key")
    with hold("key"):
        pass


@pytest.mark.usefixtures("memory")
def test_readers_share_a_key() -> None:
    @zk_locked("key", mode="read", timeout=0)
    def read() -> bool:
        return True

    with hold("key", kind="read"):
        assert read()
    with hold("key", kind="write"), pytest.raises(LockBusy):
        read()


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("memory")
def test_a_hold_is_lost_when_its_session_has_expired() -> None:
    with pytest.raises(LockLost), zk_lock("key") as held, captured_locks() as locks:  # noqa: PT012
        expire_session()
        assert held.lost
        eventually(lambda: locks.keys("lost") == ["key"], PATIENCE)
        assert session_for().connected
    assert zk_lock("key").acquire(timeout=0)


@pytest.mark.usefixtures("distlock_settings")
def test_a_session_on_a_real_server_expires() -> None:
    with pytest.raises(LockLost), zk_lock("key") as held:  # noqa: PT012
        expire_session()
        assert held.lost
    assert zk_lock("key").acquire(timeout=PATIENCE)
    zk_lock("key").release()


@pytest.mark.usefixtures("memory")
def test_a_session_expires_while_it_is_cut_off() -> None:
    with pytest.raises(LockLost), zk_lock("key") as held:  # noqa: PT012
        with lose_connection():
            expire_session()
            assert zk_lock("key", using="other").acquire(timeout=0)
        assert held.lost
    zk_lock("key", using="other").release()


@pytest.mark.usefixtures("impatient", "memory")
def test_a_short_loss_of_the_connection_keeps_what_is_held() -> None:
    with zk_lock("key") as held:
        with lose_connection():
            assert not session_for().connected
            with pytest.raises(LockUnavailable):
                zk_lock("another").acquire()
        held.verify()


@pytest.mark.usefixtures("memory")
def test_a_long_loss_of_the_connection_ends_the_session(
    settings: Settings, options: dict[str, Any]
) -> None:
    settings.DISTLOCK = {"default": {**options, "SESSION_TIMEOUT": 1}, "other": options}
    with pytest.raises(LockLost), zk_lock("key") as held, lose_connection():  # noqa: PT012
        assert zk_lock("key", using="other").acquire(timeout=PATIENCE)
        assert held.lost
    zk_lock("key", using="other").release()


@pytest.mark.engines("zookeeper", "redis")
@pytest.mark.usefixtures("distlock_settings")
def test_the_connection_to_a_real_server_is_lost_and_found() -> None:
    with zk_lock("key") as held:
        with lose_connection():
            assert not session_for().connected
        held.verify()


def count_from(memory: MemoryTree, path: str, number: int) -> None:
    """Let the next sequence number under a node be this one, which no server can be told."""
    with memory.transaction():
        memory._put(path, memory.check(path)._replace(made=number))


@pytest.mark.parametrize("start", [WORN - 2, 2**31 - 1])
def test_never_do_two_hold_over_the_end_of_the_numbers(memory: MemoryTree, start: int) -> None:
    inside: list[int] = []
    served: list[int] = []

    def work(number: int, using: str) -> None:
        with zk_lock("key", using=using, timeout=PATIENCE):
            inside.append(number)
            assert inside == [number]
            served.append(number)
            inside.remove(number)

    with zk_lock("key"):
        count_from(memory, "/distlock/key", start)
        using = itertools.cycle(["default", "other"])
        threads = [threading.Thread(target=work, args=(n, next(using))) for n in range(8)]
        for thread in threads:
            thread.start()
        watched = lambda: memory._watches.get((first_of(memory), Kind.DATA))  # noqa: E731
        eventually(watched, PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(served) == list(range(8))


def first_of(memory: MemoryTree) -> str:
    (first, *_) = in_line(memory.children("/distlock/key"))
    return f"/distlock/key/{first.name}"


# --- what is locked ------------------------------------------------------------------------------


@pytest.mark.usefixtures("memory")
def test_a_lock_that_is_held_is_found() -> None:
    with zk_lock("lock"), zk_semaphore("semaphore", 2), zk_lease("lease", 60):
        for key in ("lock", "semaphore", "lease"):
            assert len(assert_locked(key)) == 1


@pytest.mark.usefixtures("memory")
def test_a_misspelt_key_fails_with_those_that_are_held() -> None:
    with zk_lock("stock:42"), zk_lock("cart:7"), pytest.raises(AssertionError) as raised:
        assert_locked("stok:42")
    assert str(raised.value) == (
        "Nobody holds 'stok:42'. Did you mean 'stock:42'? Held are: 'cart:7', 'stock:42'."
    )
    with pytest.raises(AssertionError, match="No lock is held at all"):
        assert_locked("stock:42")


@pytest.mark.usefixtures("impatient", "memory")
def test_what_a_block_takes_is_recorded() -> None:
    with hold("busy"), captured_locks() as locks:
        with zk_lock("a"), zk_lock("a"), zk_semaphore("b", 1):
            assert not zk_lock("busy").acquire(timeout=0)
        with lose_connection(), pytest.raises(LockUnavailable):
            zk_lock("c").acquire()
    assert zk_lock("later").acquire(timeout=0)
    assert locks.keys() == ["a", "b"]
    assert locks.keys("busy") == ["busy"]
    assert [type(one.error) for one in locks if one.outcome == "failed"] == [LockUnavailable]
    assert isinstance(locks[0], CapturedLock)
