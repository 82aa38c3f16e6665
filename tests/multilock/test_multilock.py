"""Several locks as one: in one order, against one deadline, all or none.

Curator goes on acquiring after one lock raised, and gives each the full timeout.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from distlock import (
    DeadlockDetected,
    LockBusy,
    LockLost,
    NotOwner,
    zk_lock,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.locks.multilock import _time_left
from distlock.owner.owner import current
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.losses import pass_time
from tests.kit.tools import OVERRUN, PATIENCE, MakeOwner, Tree, expire, forgets_all, within

pytestmark = pytest.mark.usefixtures("tree")


def held() -> list[str]:
    """The keys that this owner holds, in the order in which they were taken."""
    return [one.hold.key for one in current().held.values()]


# --- all -----------------------------------------------------------------------------------------


def test_the_holds_come_in_the_order_in_which_they_were_asked_for() -> None:
    with zk_multilock("b", "c", "a") as holds:
        assert [hold.key for hold in holds] == ["b", "c", "a"]
        for hold in holds:
            hold.verify()
    assert all(hold.released for hold in holds)
    assert not held()


@pytest.mark.parametrize("keys", ["abc", "cab", "bca"])
def test_locks_are_taken_in_one_order(keys: str) -> None:
    with zk_multilock(*keys) as holds:
        assert held() == ["a", "b", "c"]
        tokens = {hold.key: hold.token for hold in holds}
        assert tokens["a"] < tokens["b"] < tokens["c"]


def test_the_alias_comes_before_the_key() -> None:
    locks = [zk_lock("z"), zk_lock("a", using="other"), zk_lock("y"), zk_lock("b", using="other")]
    with zk_multilock(*locks, "x", using="other"):
        assert held() == ["y", "z", "a", "b", "x"]


@pytest.mark.parametrize("others", [["a.b"], ["a-b", "a.b", "a0", "aa"]], ids=len)
def test_locks_of_one_key_are_taken_at_its_place_whatever_their_kind(others: list[str]) -> None:
    """A mutex and the two of a read/write lock keep each other out, so they have one place."""
    for lock in (zk_lock("a"), zk_rwlock("a").read, zk_rwlock("a").write):
        with zk_multilock(lock, *others):
            assert held()[0] == "a"


def test_a_lock_that_is_given_twice_is_taken_once(tree: Tree) -> None:
    """Two lines of a basket may name one article, and two spellings one key."""
    basket = zk_multilock("lamp", "table", "lamp", zk_lock("lamp"), "caf\u00e9", "cafe\u0301")
    with basket as holds:
        assert len(set(map(id, holds))) == 3
        assert holds[0] is holds[2] is holds[3]
        assert holds[4] is holds[5]
        assert len(tree.line("lamp")) == 1
    assert not held()


def test_reading_and_writing_one_key_takes_both(make_owner: MakeOwner) -> None:
    lock, other = zk_rwlock("a"), make_owner()
    with zk_multilock(lock.read, lock.write) as (read, write):
        assert read.token == write.token
        assert not other.now(lock.read.acquire, timeout=0)
    assert not held()


def test_a_multi_lock_in_another_is_its_locks() -> None:
    inner = zk_multilock("c", "a", timeout=0)
    with zk_multilock("b", inner, "a") as holds:
        assert [hold.key for hold in holds] == ["b", "c", "a", "a"]
        assert held() == ["a", "b", "c"]


def test_a_lease_of_a_semaphore_can_be_among_them(make_owner: MakeOwner) -> None:
    semaphore, mutex, other = zk_semaphore("mail", 2), zk_semaphore_mutex("gate"), make_owner()
    with zk_multilock("stock", semaphore, mutex) as (stock, lease, gate):
        assert [hold.key for hold in (stock, lease, gate)] == ["stock", "mail", "gate"]
        assert semaphore.held == 1
        lease.verify()
        assert not other.now(mutex.acquire, timeout=0)
        assert other.now(semaphore.acquire, timeout=0)
        assert not other.now(semaphore.acquire, timeout=0)
    assert semaphore.held == 1
    with semaphore:
        assert not zk_multilock(semaphore, "stock").acquire(timeout=0)
        assert semaphore.held == 2  # and those of others are as they were
    semaphore.release()


# --- or none -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    "how", [{"timeout": 0}, {"blocking": False}, {"timeout": 0.2}], ids=["tried", "once", "waited"]
)
def test_where_one_is_busy_none_is_taken(tree: Tree, how: dict[str, Any]) -> None:
    assert zk_multilock("a", "b", "c").acquire(**how) is False
    assert not held()
    for key, length in {"a": 0, "b": 1, "c": 0}.items():
        tree.await_line(key, length)
    forgets_all(session_for())


@pytest.mark.usefixtures("busy")
def test_the_error_names_the_key_that_was_busy_and_its_holder(tree: Tree) -> None:
    with pytest.raises(LockBusy) as raised, zk_multilock("c", "b", "a", timeout=0.2):
        pass
    error, (holder,) = raised.value, tree.line("b")
    assert (error.key, error.using) == ("b", "default")
    assert error.holder is not None
    assert error.holder.path == f"{tree.path('b')}/{holder}"
    assert error.waited >= 0.2
    assert str(error).startswith("The lock 'b' is busy after")
    assert "one of 3 locks that are taken together" in str(error)
    assert not held()


@pytest.mark.usefixtures("busy")
def test_what_was_held_before_is_still_held_when_one_is_busy(tree: Tree) -> None:
    with zk_lock("a") as hold, zk_rwlock("c").read:
        assert not zk_multilock("a", "b").acquire(timeout=0)
        assert held() == ["a", "c"]
        hold.verify()
    tree.await_line("a", 0)


@pytest.mark.usefixtures("busy")
def test_nothing_is_asked_for_after_one_was_refused(tree: Tree) -> None:
    assert not zk_multilock("a", "b", "c").acquire(timeout=0)
    assert tree.client.exists(tree.path("a"))
    assert not tree.client.exists(tree.path("c"))


def test_nothing_is_asked_for_after_one_has_raised(tree: Tree) -> None:
    """Curator goes on with the rest."""
    with zk_rwlock("b").read, pytest.raises(DeadlockDetected) as raised:
        zk_multilock("a", zk_rwlock("b").write, "c").acquire()
    assert raised.value.key == "b"
    assert not tree.client.exists(tree.path("c"))
    assert not held()
    tree.await_line("a", 0)


def test_a_mutex_and_a_read_lock_of_one_key_cannot_be_had_together() -> None:
    with pytest.raises(DeadlockDetected):
        zk_multilock(zk_rwlock("a").read, "a").acquire(timeout=PATIENCE)
    assert not held()


def test_a_lock_that_is_lost_while_others_are_waited_for_gives_all_back(
    tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    holder, taker, lock = make_owner(), make_owner(), zk_lock("b", using="other")
    assert holder.now(lock.acquire)
    taken = taker.submit(zk_multilock("a", "b").acquire, timeout=PATIENCE)
    tree.await_line("b", 2)
    expire(zookeeper.hosts, session_for())
    tree.await_line("b", 2)  # in line again, with the next session
    tree.await_line("a", 0)
    holder.now(lock.release)
    assert isinstance(taken.exception(PATIENCE), LockLost)
    assert not taker.now(held)
    tree.await_line("b", 0)


# --- one deadline --------------------------------------------------------------------------------


def test_all_together_have_one_deadline(tree: Tree, make_owner: MakeOwner) -> None:
    """With the whole timeout for each this takes half as long again."""
    first, second = make_owner(), make_owner()
    assert first.now(zk_lock("a").acquire)
    assert second.now(zk_lock("b").acquire)

    def release_late() -> None:
        pass_time(1)
        zk_lock("a").release()

    released = first.submit(release_late)
    started = time.monotonic()
    with within(2 + OVERRUN):
        assert not zk_multilock("a", "b").acquire(timeout=2)
    assert time.monotonic() - started >= 2
    released.result(PATIENCE)
    tree.await_line("a", 0)
    second.now(zk_lock("b").release)


@pytest.mark.parametrize(
    ("limit", "waited", "left"),
    [(None, 3, None), (0, 3, 0), (5, 0, 5), (5, 3, 2), (5, 5.05, 0), (0.001, 0.05, 0)],
)
def test_each_has_the_time_that_is_left(
    limit: float | None, waited: float, left: float | None
) -> None:
    """With a timeout of 0 all are tried, and so is one just after the deadline."""
    assert _time_left(zk_lock("a"), limit, waited) == left


def test_none_is_tried_when_the_time_is_up() -> None:
    with pytest.raises(LockBusy, match="no time was left") as busy:
        _time_left(zk_lock("a"), 0.001, 3)
    assert busy.value.key == "a"


# --- releasing -----------------------------------------------------------------------------------


def test_they_are_as_reentrant_as_their_locks(make_owner: MakeOwner) -> None:
    both, other = zk_multilock("a", "b"), make_owner()
    with both as outer, both as inner, zk_lock("b") as single:
        assert inner == outer
        assert single is outer[1]
    assert both.acquire()
    assert both.acquire()
    both.release()
    assert not other.now(both.acquire, timeout=0)
    both.release()
    assert other.now(both.acquire)
    other.now(both.release)


def test_one_object_serves_many_owners(make_owner: MakeOwner) -> None:
    both, owners, inside = zk_multilock("a", "b", timeout=PATIENCE), [], []

    def take(name: int) -> None:
        with both:
            inside.append(name)
            assert inside == [name]
            inside.remove(name)

    owners = [make_owner().submit(take, number) for number in range(8)]
    for owner in owners:
        owner.result(PATIENCE)


def test_what_is_not_held_cannot_be_released_and_the_rest_is(tree: Tree) -> None:
    with pytest.raises(NotOwner):
        zk_multilock("a", "b").release()
    zk_lock("a").acquire()
    with pytest.raises(NotOwner, match="'b'"):
        zk_multilock("a", "b").release()
    assert not held()
    tree.await_line("a", 0)


def test_a_lost_lock_is_said_when_the_block_is_left(zookeeper: ZooKeeper) -> None:
    with pytest.raises(LockLost), zk_multilock("a", "b") as holds:  # noqa: PT012
        expire(zookeeper.hosts, session_for())
        eventually(lambda: all(hold.lost for hold in holds), PATIENCE)
    assert not held()


def test_the_exception_of_the_body_is_worth_more(tree: Tree, zookeeper: ZooKeeper) -> None:
    with pytest.raises(KeyError, match="the body's"), zk_multilock("a", "b") as holds:  # noqa: PT012
        expire(zookeeper.hosts, session_for())
        eventually(lambda: all(hold.lost for hold in holds), PATIENCE)
        raise KeyError("the body's")
    assert not held()
    tree.await_line("a", 0)


def test_the_next_takers_are_in_when_the_block_is_left(make_owner: MakeOwner) -> None:
    both, other = zk_multilock("a", "b", timeout=PATIENCE), make_owner()
    with both:
        taken = other.submit(both.acquire)
    assert taken.result(PATIENCE)
    other.now(both.release)
