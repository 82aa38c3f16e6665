"""Curator's TestInterProcessMultiMutex, by intent.

Where Curator makes a lock of its own that fails, these tests do it to one of ours.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NoReturn

import pytest

from distlock import LockLost, Mutex, zk_lock, zk_multilock
from distlock.locks.lock import Options
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, expire, forgets_all

if TYPE_CHECKING:
    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("tree")

PATHS = ("our-lock-1", "our-lock-2")


class Foo(Exception):
    """What the bad locks raise."""


class ReleasedInVain(Mutex):
    """A lock whose release fails after it was done, or before."""

    def __init__(self, key: str, *, done: bool) -> None:
        super().__init__(key, Options())
        self._done = done

    def release(self) -> None:
        if self._done:
            super().release()
        raise Foo(self.key)


class AskedInVain(Mutex):
    """A lock that cannot be taken."""

    def __init__(self, key: str, good: Mutex) -> None:
        super().__init__(key, Options())
        self._good = good
        self.good_lock_was_locked = False

    def _call(self, *args: object) -> NoReturn:
        self.good_lock_was_locked = self._good.held
        raise Foo(self.key)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("bad", ["our-lock-0", "our-lock-2"])
def test_some_releases_fail(tree: Tree, bad: str, done: bool) -> None:
    """testSomeReleasesFail: the good lock is released, whichever comes first.

    Curator's bad lock stays taken. Ours is given back all the same: nothing leaks (promise 4).
    """
    good, bad_lock = zk_lock("our-lock-1"), ReleasedInVain(bad, done=done)
    both = zk_multilock(good, bad_lock)
    assert both.acquire()
    with pytest.raises(Foo, match=bad):
        both.release()
    assert not good.held
    assert not bad_lock.held
    for key in ("our-lock-1", bad):
        tree.await_line(key, 0)


def test_all_releases_are_tried_and_the_first_error_is_raised(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    """The same with three: the last taken is released first; what went wrong later is logged."""
    locks = [ReleasedInVain(key, done=False) for key in "abc"]
    with (
        caplog.at_level(logging.ERROR, "distlock"),
        pytest.raises(Foo, match="c"),
        zk_multilock(*locks),
    ):
        pass
    assert [record.message.rpartition(" ")[2] for record in caplog.records] == ["b", "a"]
    for key in "abc":
        tree.await_line(key, 0)


def test_some_locks_fail_to_lock(tree: Tree) -> None:
    """testSomeLocksFailToLock: what was taken before is given back, what comes after not asked."""
    good = zk_lock("our-lock-1")
    bad = AskedInVain("our-lock-2", good)
    with pytest.raises(Foo):
        zk_multilock("our-lock-3", good, bad).acquire()
    assert bad.good_lock_was_locked
    assert not good.held
    tree.await_line("our-lock-1", 0)
    assert not tree.client.exists(tree.path("our-lock-3"))


# --- TestInterProcessMutexBase, which it extends -------------------------------------------------


def test_waiting_process_killed_session(
    tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    """testKilledSession: the session of the holder and the waiter expires; the waiter is served."""
    both, waiter = zk_multilock(*PATHS), make_owner()
    assert both.acquire()
    granted = waiter.submit(both.acquire, timeout=PATIENCE)
    tree.await_line(PATHS[0], 2)
    expire(zookeeper.hosts, session_for())
    assert granted.result(PATIENCE)
    with pytest.raises(LockLost):
        both.release()
    for path in PATHS:
        assert len(tree.await_line(path, 1)) == 1
    waiter.now(both.release)


def test_locker() -> None:
    """testWithNamespace and others use a Locker: held in its block, and not after it."""
    both, locks = zk_multilock(*PATHS), [zk_lock(path) for path in PATHS]
    with both:
        assert [lock.held for lock in locks] == [True, True]
    assert [lock.held for lock in locks] == [False, False]
    eventually(lambda: not any(lock.locked() for lock in locks), PATIENCE)


def test_reentrant() -> None:
    """testReentrant: functions that all take both call each other."""
    depths: list[int] = []

    def take(depth: int) -> None:
        with zk_multilock(*PATHS, timeout=2):
            depths.append(depth)
            if depth < 3:
                take(depth + 1)

    take(1)
    assert depths == [1, 2, 3]
    forgets_all(session_for())


def test_reentrant_single_lock(make_owner: MakeOwner) -> None:
    """testReentrantSingleLock: ten threads share one object; one is inside, at each depth."""
    both, inside, together = zk_multilock(*PATHS, timeout=PATIENCE), [], threading.Barrier(10)

    def take() -> None:
        together.wait(PATIENCE)
        for depth in range(3):
            assert both.acquire()
            inside.append(threading.get_ident())
            assert set(inside) == {threading.get_ident()}
            assert len(inside) == depth + 1
        for _ in range(3):
            inside.pop()
            both.release()

    threads = [make_owner().submit(take) for _ in range(10)]
    for thread in threads:
        thread.result(2 * PATIENCE)
    assert not inside


def test_2_clients(tree: Tree, make_owner: MakeOwner) -> None:
    """test2Clients: two sessions take both in turn; one is not in before the other is out."""
    owners = {"default": make_owner(), "other": make_owner()}
    both = {using: zk_multilock(*PATHS, using=using) for using in owners}
    assert owners["default"].now(both["default"].acquire)
    for using, rival in [("default", "other"), ("other", "default")] * 3:
        granted = owners[rival].submit(both[rival].acquire, timeout=PATIENCE)
        tree.await_line(PATHS[0], 2)
        assert not granted.done()
        owners[using].now(both[using].release)
        assert granted.result(PATIENCE)
    owners["default"].now(both["default"].release)
