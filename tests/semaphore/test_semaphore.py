"""Taking permits and giving them back: from any thread, several at once, in blocks, in tasks."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from django.db import transaction

from distlock import (
    LimitReached,
    LockLost,
    NotOwner,
    lock_acquired,
    lock_contended,
    lock_lost,
    lock_released,
    zk_lock,
    zk_semaphore,
)
from distlock.locks.semaphore import Semaphore
from distlock.session import patience
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.permits import KEY, Inside, Permits
from tests.kit.tools import PATIENCE, MakeOwner, await_connection, expire, forgets_all
from tests.mutex.test_signals_and_looking import received

if TYPE_CHECKING:
    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("permits")


def test_there_are_as_many_permits_as_the_limit(permits: Permits) -> None:
    semaphore = zk_semaphore(KEY, 3)
    assert [semaphore.acquire(timeout=0) for _ in range(4)] == [True, True, True, False]
    permits.await_(3, 0)
    assert semaphore.held == 3
    semaphore.release(3)
    assert semaphore.held == 0


def test_a_permit_is_released_by_any_thread_and_any_object_of_the_key(
    make_owner: MakeOwner, permits: Permits
) -> None:
    assert make_owner().now(zk_semaphore(KEY, 1).acquire)
    make_owner().now(zk_semaphore(KEY, 1).release)
    permits.await_(0, 0)


def test_waiters_are_served_in_the_order_of_their_arrival(
    make_owner: MakeOwner, permits: Permits
) -> None:
    semaphore, served = zk_semaphore(KEY, 1), []
    assert semaphore.acquire()

    def take(number: int) -> None:
        with zk_semaphore(KEY, 1, timeout=PATIENCE, using=("default", "other")[number % 2]):
            served.append(number)

    waiting = []
    for number in range(4):
        waiting.append(make_owner().submit(take, number))
        permits.await_(2, number + 1)
    semaphore.release()
    for one in waiting:
        one.result(PATIENCE)
    assert served == [0, 1, 2, 3]


@pytest.mark.parametrize("end", ["released", "left"])
def test_only_the_head_of_the_gate_watches_the_permits(
    make_owner: MakeOwner, permits: Permits, end: str
) -> None:
    """No herd: of ten who wait for a permit one is woken."""
    semaphore = zk_semaphore(KEY, 1)
    assert semaphore.acquire()
    timeout = PATIENCE if end == "released" else 1

    def take() -> bool:
        granted = zk_semaphore(KEY, 1).acquire(timeout=timeout)
        if granted:
            zk_semaphore(KEY, 1).release()
        return granted

    waiting = [make_owner().submit(take) for _ in range(10)]
    if end == "released":
        permits.await_head(1, 10)
        assert len(permits.names()) == 2
        semaphore.release()
    assert [one.result(PATIENCE) for one in waiting] == [end == "released"] * 10
    permits.tree.await_watches()
    if end == "left":
        semaphore.release()
    permits.await_(0, 0)
    forgets_all(session_for())


# --- several at once -----------------------------------------------------------------------------


def test_several_permits_are_taken_together_or_not_at_all(permits: Permits) -> None:
    semaphore, other = zk_semaphore(KEY, 5), zk_semaphore(KEY, 5, using="other")
    assert semaphore.acquire(leases=3)
    assert not other.acquire(leases=3, timeout=0)
    assert not other.acquire(leases=3, timeout=0.1)
    permits.await_(3, 0)
    assert other.acquire(leases=2, timeout=0)
    semaphore.release(2)
    assert other.acquire(leases=2)
    permits.await_(5, 0)
    assert (semaphore.held, other.held) == (1, 4)
    semaphore.release()
    other.release(leases=4)


def test_two_who_want_several_do_not_wait_for_each_other(make_owner: MakeOwner) -> None:
    """Curator takes one after the other: each may get a part, and wait for the rest for ever."""
    inside = Inside()

    def take(using: str) -> None:
        semaphore = zk_semaphore(KEY, 3, using=using)
        for _ in range(15):
            assert semaphore.acquire(leases=2, timeout=PATIENCE)
            with inside.counted(2):
                pass
            semaphore.release(2)

    takers = [make_owner().submit(take, using) for using in ["default", "other"] * 2]
    for taker in takers:
        taker.result(2 * PATIENCE)
    assert inside.most == 2
    assert inside.entries == 60


def test_who_wants_several_is_not_overtaken_by_who_wants_one(
    make_owner: MakeOwner, permits: Permits
) -> None:
    semaphore = zk_semaphore(KEY, 2)
    assert semaphore.acquire()
    both = make_owner().submit(semaphore.acquire, timeout=PATIENCE, leases=2)
    permits.await_(3, 1)
    one = make_owner().submit(zk_semaphore(KEY, 2, using="other").acquire, timeout=PATIENCE)
    permits.await_(3, 2)
    semaphore.release()
    assert both.result(PATIENCE)
    assert not one.done()
    semaphore.release(2)
    assert one.result(PATIENCE)
    zk_semaphore(KEY, 2, using="other").release()


# --- a try ---------------------------------------------------------------------------------------


def test_a_try_is_not_refused_while_there_are_permits(make_owner: MakeOwner) -> None:
    """Others pass the queue all the time; that takes a moment and is no reason to refuse."""
    busy, stop = zk_semaphore(KEY, 50, using="other"), threading.Event()

    def pass_the_queue() -> int:
        rounds = 0
        while not stop.is_set():
            assert busy.acquire()
            busy.release()
            rounds += 1
        return rounds

    passing = [make_owner().submit(pass_the_queue) for _ in range(3)]
    try:
        tries = [zk_semaphore(KEY, 50).acquire(timeout=0) for _ in range(40)]
    finally:
        stop.set()
    assert all(tries)
    assert all(one.result(PATIENCE) for one in passing)
    zk_semaphore(KEY, 50).release(40)


def test_a_try_behind_one_who_has_died_at_the_gate_is_busy(
    permits: Permits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a moment, and then does not say that the server is away."""
    monkeypatch.setattr(patience, "ANSWER_SECONDS", 2.0)
    with zk_semaphore(KEY, 2):
        permits.await_(1, 0)
        dead = permits.tree.client.create(
            f"{permits.queue}/_c_9b0ca9d2-64ee-4ff0-8a4b-b0e0a4f0e4b7-lock-",
            ephemeral=True,
            sequence=True,
            makepath=True,  # nobody is at the queue, so the server may have removed it
        )
        assert zk_semaphore(KEY, 2).acquire(timeout=0) is False
        permits.tree.client.delete(dead)


# --- blocks and tasks ----------------------------------------------------------------------------


def test_a_block_has_a_permit_of_its_own(permits: Permits, make_owner: MakeOwner) -> None:
    semaphore = zk_semaphore(KEY, 3)
    assert semaphore.acquire()
    with semaphore as outer, semaphore as inner:
        assert outer.token < inner.token
        assert {outer.path, inner.path} < {f"{permits.path}/{name}" for name in permits.names()}
        semaphore.release()
        with pytest.raises(NotOwner):
            semaphore.release()
        with pytest.raises(NotOwner):
            make_owner().now(semaphore.release)
        inner.verify()
        assert inner.valid_for() > 0
    assert outer.released
    assert inner.released
    permits.await_(0, 0)


def test_a_block_that_cannot_be_entered_says_so(permits: Permits) -> None:
    late = zk_semaphore(KEY, 1, timeout=0.05)
    said = f"^The limit of 1 for '{KEY}' is busy after .* s: all permits are taken"
    with zk_semaphore(KEY, 1), pytest.raises(LimitReached, match=said) as refused:
        late.__enter__()
    assert refused.value.key == KEY
    assert refused.value.waited >= 0.05
    permits.await_(0, 0)


def test_a_hold_is_shared_unless_there_is_one_lease() -> None:
    """A fence cannot tell apart who holds at the same time."""
    with zk_semaphore(KEY, 2) as hold:
        assert hold.shared
    with zk_semaphore("another", 1) as hold:
        assert not hold.shared


def test_tasks_wait_without_a_thread_and_share_the_permits(permits: Permits) -> None:
    semaphore, inside = zk_semaphore(KEY, 3, timeout=PATIENCE), Inside()

    async def work() -> None:
        async with semaphore:
            with inside.counted():
                await asyncio.sleep(0.001)

    async def all_of_them() -> None:
        threads = threading.active_count()
        tasks = [asyncio.create_task(work()) for _ in range(30)]
        await asyncio.sleep(0)
        assert threading.active_count() <= threads + 2  # the session's own
        await asyncio.gather(*tasks)
        assert await semaphore.aacquire(leases=2)
        assert semaphore.held == 2
        await semaphore.arelease(2)

    asyncio.run(all_of_them())
    assert inside.entries == 30
    assert 1 <= inside.most <= 3
    permits.await_(0, 0)


@pytest.mark.django_db
def test_a_semaphore_may_be_used_in_a_transaction() -> None:
    """It guards no rows, so nothing is read too early after its release."""
    with transaction.atomic(durable=False), zk_semaphore(KEY, 1) as hold:
        hold.check()


def test_a_mutex_on_the_same_key_is_another_lock() -> None:
    with zk_lock(KEY, using="other"), zk_semaphore(KEY, 1), zk_lock("unrelated"):
        assert len(zk_lock(KEY).participants()) == 1


# --- looking and listening -----------------------------------------------------------------------


def test_who_has_permits_and_who_waits_is_told(make_owner: MakeOwner, permits: Permits) -> None:
    semaphore = zk_semaphore(KEY, 2)
    assert not semaphore.locked()
    assert semaphore.participants() == semaphore.waiters() == []
    assert semaphore.acquire()
    assert not semaphore.locked()
    assert zk_semaphore(KEY, 2, using="other").acquire()
    assert semaphore.locked()
    mine, theirs = semaphore.participants()
    assert [mine.session_id, theirs.session_id] == [session_for().id, session_for("other").id]
    assert mine.worker == "MainThread"
    assert mine.token < theirs.token
    waiter = make_owner().submit(semaphore.acquire, timeout=PATIENCE)
    permits.await_head(2)
    assert len(semaphore.waiters()) == 1
    zk_semaphore(KEY, 2, using="other").release()
    assert waiter.result(PATIENCE)
    eventually(lambda: not semaphore.waiters(), PATIENCE)
    semaphore.release(2)


def test_each_permit_is_announced() -> None:
    semaphore = zk_semaphore(KEY, 2)
    with received(lock_acquired, lock_released, lock_contended) as said:
        assert semaphore.acquire(leases=2)
        assert not semaphore.acquire(timeout=0)
        semaphore.release(2)
    sent = [signal for signal, _ in said]
    assert sent == [lock_acquired] * 2 + [lock_contended] + [lock_released] * 2
    assert {facts["sender"] for _, facts in said} == {Semaphore}
    assert {facts["key"] for _, facts in said} == {KEY}
    acquired, released = (
        {facts["hold"] for signal, facts in said if signal is which}
        for which in (lock_acquired, lock_released)
    )
    assert acquired == released
    assert len(acquired) == 2


def test_a_lost_permit_is_told_and_its_release_says_so(
    zookeeper: ZooKeeper, permits: Permits
) -> None:
    semaphore = zk_semaphore(KEY, 2)
    with received(lock_lost) as said:
        assert semaphore.acquire(leases=2)
        old = expire(zookeeper.hosts, await_connection())
        eventually(lambda: len(said) == 2, PATIENCE, "news of both losses")
        eventually(lambda: session_for().id not in (0, old), PATIENCE, "a new session")
        with pytest.raises(LockLost):
            semaphore.release(2)
    assert semaphore.held == 0
    permits.await_(0, 0)
    assert len(said) == 2


def test_a_permit_that_an_operator_breaks_is_lost_and_the_others_are_not(permits: Permits) -> None:
    broken_one = zk_semaphore(KEY, 2)
    with zk_semaphore(KEY, 2) as kept:
        broken = broken_one.__enter__()
        permits.tree.client.delete(broken.path)
        eventually(lambda: broken.lost, PATIENCE, "a loss that was noticed")
        with pytest.raises(LockLost):
            broken_one.__exit__(None, None, None)
        assert not kept.lost
    assert kept.released
