"""``max_waiters=``: where so many wait already, in all processes, a lock is busy at once."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from distlock import LimitReached, LockBusy, zk_limited, zk_lock, zk_locked, zk_rwlock, zk_semaphore
from tests.contenders.tools import KEY, Waiter
from tests.interrupts.recipes import parents
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, settle

pytestmark = pytest.mark.usefixtures("patient", "tree")
engines = pytest.mark.engines("zookeeper", "redis")


class Kind(NamedTuple):
    """A kind of lock: what holds it, what waits for it, and how many do."""

    holds: Any
    holders: int
    waits: Any
    waiting: Any


KINDS = {
    "mutex": Kind(zk_lock, 1, zk_lock, lambda: len(zk_lock(KEY).participants()) - 1),
    "writer": Kind(
        lambda key, **how: zk_rwlock(key, **how).read,
        2,
        lambda key, **how: zk_rwlock(key, **how).write,
        lambda: len(zk_rwlock(KEY).write.participants()),
    ),
    "reader": Kind(
        lambda key, **how: zk_rwlock(key, **how).write,
        1,
        lambda key, **how: zk_rwlock(key, **how).read,
        lambda: len(zk_rwlock(KEY).read.participants()),
    ),
    "semaphore": Kind(
        lambda key, **how: zk_semaphore(key, 2, **how),
        2,
        lambda key, **how: zk_semaphore(key, 2, **how),
        lambda: len(zk_semaphore(KEY, 2).waiters()),
    ),
}


def await_waiters(kind: Kind, number: int) -> None:
    eventually(lambda: kind.waiting() == number, PATIENCE, f"{number} who wait")


@engines
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_one_waiter_more_is_refused_at_once(kind: Kind, make_owner: MakeOwner) -> None:
    holders = [make_owner() for _ in range(kind.holders)]
    for owner in holders:
        assert owner.now(kind.holds(KEY, using="other").acquire)
    owners, taken = [make_owner(), make_owner()], []
    for number, using in enumerate(("other", "default"), start=1):
        lock = kind.waits(KEY, using=using, max_waiters=2)
        taken.append(owners[number - 1].submit(lock.acquire, timeout=4 * PATIENCE))
        await_waiters(kind, number)
    full = kind.waits(KEY, max_waiters=2, timeout=4 * PATIENCE)
    with pytest.raises(LockBusy, match=r"already: 2\. Try .* raise max_waiters=") as busy:
        full.__enter__()
    assert busy.value.waited < PATIENCE
    assert isinstance(busy.value, LimitReached) == (kind is KINDS["semaphore"])
    with full.attempt() as hold:
        assert hold is None
    assert not asyncio.run(full.aacquire())
    assert not kind.waits(KEY, max_waiters=0, timeout=4 * PATIENCE).acquire()
    assert [one.done() for one in taken] == [False, False]
    for owner in holders:
        owner.now(kind.holds(KEY, using="other").release)
    for owner, one, using in zip(owners, taken, ("other", "default"), strict=True):
        assert one.result(PATIENCE)
        owner.now(kind.waits(KEY, using=using).release)


def test_of_a_crowd_as_many_wait_as_may(tree: Tree, make_owner: MakeOwner) -> None:
    owners = [make_owner() for _ in range(12)]
    with zk_lock(KEY, using="other"):
        locks = [zk_lock(KEY, using=using, max_waiters=3) for using in ["default", "other"] * 6]
        taken = [
            owner.submit(lock.acquire, timeout=4 * PATIENCE)
            for owner, lock in zip(owners, locks, strict=True)
        ]
        eventually(lambda: sum(one.done() for one in taken) == 9, PATIENCE)
        tree.await_line(KEY, 4)
    for _ in range(3):
        eventually(lambda: sum(one.done() and one.result() for one in taken) == 1, PATIENCE)
        number = next(n for n, one in enumerate(taken) if one.done() and one.result())
        owners[number].now(locks[number].release)
        del owners[number], locks[number], taken[number]


def test_in_a_burst_those_who_find_permits_do_not_count(make_owner: MakeOwner) -> None:
    owners = [make_owner() for _ in range(10)]
    semaphore = zk_semaphore(KEY, 10, max_waiters=1, timeout=4 * PATIENCE)
    assert all(one.result(PATIENCE) for one in [o.submit(semaphore.acquire) for o in owners])
    semaphore.release(10)


def test_with_handoff_those_of_the_process_count_and_each_other_process(
    tree: Tree, make_owner: MakeOwner
) -> None:
    with zk_lock(KEY, using="other"):
        waiters = [Waiter(tree, make_owner, "other")]
        waiters += [Waiter(tree, make_owner, handoff=3, max_waiters=3) for _ in range(2)]
        late = make_owner()
        with pytest.raises(LockBusy, match="waiting already: 3"):
            late.now(zk_lock(KEY, handoff=3, max_waiters=3).__enter__)
    for waiter in waiters:
        waiter.release()
    with zk_lock(KEY, handoff=3):
        waiters = [Waiter(tree, make_owner, handoff=3, max_waiters=1)]
        assert not late.now(zk_lock(KEY, handoff=3, max_waiters=1).acquire, timeout=4 * PATIENCE)
    waiters[0].release()


def test_a_free_lock_costs_no_request_more(tree: Tree, requests: list[str]) -> None:
    sent = []
    parents(tree)
    for waiters in (None, 0, 3):
        for lock in (
            zk_lock(KEY, max_waiters=waiters),
            zk_semaphore("key-2", 1, max_waiters=waiters),
        ):
            with lock:
                pass
            settle(await_connection())
            requests.clear()
            with lock:
                sent.append([one for one in requests if one != "Sync"])
    assert sent == sent[:2] * 3


@engines
def test_decorated_calls_are_refused_at_once(make_owner: MakeOwner) -> None:
    @zk_locked(KEY, max_waiters=0, timeout=4 * PATIENCE, on_busy="skip")
    def alone() -> str:
        return "done"

    @zk_limited("limited", 1, max_waiters=0, timeout=4 * PATIENCE, on_busy="skip")
    def limited() -> str:
        return "done"

    with zk_lock(KEY, using="other"), zk_semaphore("limited", 1, using="other"):
        assert [make_owner().now(call) for call in (alone, limited)] == [None, None]
    eventually(lambda: alone() == limited() == "done", PATIENCE)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3"])
def test_it_is_a_number_of_waiters_in_a_queue(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_waiters= is a number of waiters from 0 up"):
        zk_lock(KEY, max_waiters=wrong)
    with pytest.raises(ValueError, match=r"max_waiters= .* without fair=False"):
        zk_lock(KEY, max_waiters=1, fair=False)
