"""Reentry and ownership (promise 3): who may enter again, who may release, and how often.

And what others got wrong: a clean-up error masks the original, two objects on one path dead-lock,
`__enter__` ignores a failed acquire or returns None, a shared object keeps state. Curator's
testReentrant, testReentrantSingleLock and testReentrant2Threads are in `test_curator_ports`.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from kazoo.exceptions import NoNodeError

from distlock import LockBusy, LockLost, NotOwner, zk_lock
from distlock.owner.owner import current
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import MakeOwner, Tree, expire

pytestmark = pytest.mark.usefixtures("tree")


def test_an_owner_enters_again_and_holds_until_the_last_release(make_owner: MakeOwner) -> None:
    lock, other = zk_lock("key"), make_owner()
    for _ in range(3):
        assert lock.acquire()
    for _ in range(2):
        lock.release()
        assert lock.held
        assert not other.now(lock.acquire, timeout=0)
    lock.release()
    assert not lock.held
    assert other.now(lock.acquire, timeout=1)
    other.now(lock.release)


def test_reentry_keeps_the_node_and_the_token(tree: Tree) -> None:
    with zk_lock("key") as outer, zk_lock("key") as inner:
        assert inner is outer
        assert len(tree.line("key")) == 1


def test_an_interrupted_release_leaves_no_hold_to_enter_again(tree: Tree) -> None:
    lock = zk_lock("key")
    lock.acquire()
    (held,) = current().held.values()
    held.grant.leave()  # a soft time limit came after this step of the release
    with lock:
        (again,) = current().held.values()
        assert again is not held
        again.grant.leave()

        def interrupted(_: object) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            lock.entry(current(), entered=interrupted).run()
        assert not lock.held
        assert lock.acquire()
    assert not current().held
    tree.await_line("key", 0)


def test_two_spellings_of_one_word_are_one_lock() -> None:
    with zk_lock("caf\u00e9"):
        assert zk_lock("cafe\u0301").held


def test_one_object_serves_many_owners_without_mixing_them_up(make_owner: MakeOwner) -> None:
    lock = zk_lock("key", timeout=0)
    holder, rival = make_owner(), make_owner()
    assert holder.now(lock.acquire)
    assert not rival.now(lock.acquire)
    assert holder.now(lambda: lock.held)
    assert not rival.now(lambda: lock.held)
    with pytest.raises(NotOwner):
        rival.now(lock.release)
    assert holder.now(lambda: lock.held)
    holder.now(lock.release)


def test_a_lock_that_is_not_held_cannot_be_released() -> None:
    with pytest.raises(NotOwner, match="acquired a lock"):
        zk_lock("key").release()


def test_a_second_release_is_refused_and_harms_nobody(tree: Tree, make_owner: MakeOwner) -> None:
    lock, next_owner = zk_lock("key"), make_owner()
    lock.acquire()
    lock.release()
    assert next_owner.now(lock.acquire)
    with pytest.raises(NotOwner):
        lock.release()
    assert len(tree.line("key")) == 1
    next_owner.now(lock.release)


def test_the_body_does_not_run_when_the_lock_is_busy(tree: Tree, make_owner: MakeOwner) -> None:
    holder, entered = make_owner(), False
    holder.now(zk_lock("key").acquire)
    with pytest.raises(LockBusy) as raised, zk_lock("key", timeout=0.1):
        entered = True
    assert not entered
    assert raised.value.key == "key"
    assert raised.value.waited >= 0.1
    assert raised.value.holder is not None
    assert raised.value.holder.path.endswith(tree.line("key")[0])
    holder.now(zk_lock("key").release)


def test_an_exception_of_the_body_gets_out_and_the_lock_is_free(tree: Tree) -> None:
    lock = zk_lock("key")
    with pytest.raises(KeyError, match="the body's"), lock:
        raise KeyError("the body's")
    assert not lock.held
    tree.await_line("key", 0)


def test_the_exception_of_the_body_is_worth_more_than_a_lost_lock(tree: Tree) -> None:
    hosts = ",".join(f"{host}:{port}" for host, port in tree.client.hosts)
    with pytest.raises(KeyError, match="the body's") as raised, zk_lock("key") as hold:  # noqa: PT012
        expire(hosts, session_for())
        eventually(lambda: hold.lost)
        raise KeyError("the body's")
    assert not isinstance(raised.value.__context__, LockLost)


def test_a_hold_says_what_was_locked_and_where(tree: Tree) -> None:
    with zk_lock("stock/42") as hold:
        assert hold.key == "stock/42"
        assert hold.path == f"{tree.path('stock/42')}/{tree.line('stock/42')[0]}"
        stat = tree.client.get(hold.path)[1]
        assert hold.token == stat.czxid
        assert stat.ephemeralOwner == session_for().id
        hold.check()
        hold.verify()
        assert not hold.lost


def test_tokens_rise_from_holder_to_holder_when_the_parent_was_removed_too(tree: Tree) -> None:
    tokens, names = [], []
    for _ in range(3):
        with zk_lock("key") as hold:
            tokens.append(hold.token)
            names.append(hold.path[-10:])
        tree.await_line("key", 0)
        with suppress(NoNodeError):  # the server has removed it before us
            tree.client.delete(tree.path("key"))
    assert tokens == sorted(set(tokens))
    assert names == ["0000000000"] * 3
