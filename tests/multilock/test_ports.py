"""Curator's TestInterProcessMultiMutex, by intent.

Where Curator makes a lock of its own that fails, these tests do it to one of ours.
"""

from __future__ import annotations

import logging
from typing import NoReturn

import pytest

from distlock import Mutex, zk_lock, zk_multilock
from distlock.locks.lock import Options
from tests.kit.tools import Tree

pytestmark = pytest.mark.usefixtures("tree")


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

    def _call(self, *args: object, **how: object) -> NoReturn:
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
