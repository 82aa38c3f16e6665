"""An exception at every single step of a multi-lock leaves nothing (promise 4).

Between two of its acquires, too. tests/interrupts has the lines of its locks. By the technique, and
with the exceptions, of tests/deadline/test_every_step.py.
"""

from __future__ import annotations

import asyncio
import itertools
import linecache
from contextlib import suppress
from types import FrameType

import pytest

from distlock import LockBusy, zk_lock, zk_multilock
from distlock.locks.multilock import MultiLock
from tests.deadline import test_every_step as technique
from tests.deadline.test_every_step import (
    KEY,
    SoftLimit,
    SoftTimeLimit,
    cancel_everywhere,
    interrupt_everywhere,
)
from tests.kit.tools import MakeOwner, Tree

pytestmark = pytest.mark.usefixtures("tree")

EXIT = MultiLock.__exit__.__code__
BODY_OF_EXIT = 1 + next(
    number
    for number in itertools.count(EXIT.co_firstlineno)
    if linecache.getline(EXIT.co_filename, number).strip() == "try:"
)


@pytest.fixture(autouse=True)
def _heads_of_exits_are_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a mutex's `__exit__`."""
    out_of_reach = technique.out_of_reach

    def also(frame: FrameType) -> bool:
        return out_of_reach(frame) or (frame.f_code is EXIT and frame.f_lineno < BODY_OF_EXIT)

    monkeypatch.setattr(technique, "out_of_reach", also)


@pytest.fixture
def keys(tree: Tree) -> list[str]:
    """Two keys whose parents the server does not remove."""
    for key in (KEY, "key-2"):
        with zk_lock(key):
            tree.client.create(f"{tree.path(key)}/keeps-the-parents", b"")
        tree.await_line(key, 0)
    return [KEY, "key-2"]


def block() -> None:
    with suppress(LockBusy), zk_multilock(KEY, "key-2", timeout=0):
        pass


def acquire_and_release() -> None:
    both = zk_multilock(KEY, "key-2", timeout=0)
    if both.acquire():
        try:
            both.release()
        except BaseException:
            if zk_lock(KEY).held:  # it never began: a release can be repeated
                both.release()
            raise


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only at the lines of the multi-lock itself: they are fewer."""
    monkeypatch.setattr(technique, "PACKAGE", EXIT.co_filename)


@pytest.mark.usefixtures("keys", "here")
def test_an_exception_before_any_line_leaves_nothing(tree: Tree) -> None:
    assert len(interrupt_everywhere(tree, acquire_and_release, SoftTimeLimit)) > 60
    tree.await_line("key-2", 0)


@pytest.mark.usefixtures("keys", "here")
def test_an_exception_before_any_line_of_a_refused_call_leaves_nothing(
    tree: Tree, make_owner: MakeOwner
) -> None:
    holder, lock = make_owner(), zk_lock("key-2", using="other")
    assert holder.now(lock.acquire)
    assert len(interrupt_everywhere(tree, block, SoftLimit)) > 60
    tree.await_line("key-2", 1)
    holder.now(lock.release)


async def block_async() -> None:
    async with zk_multilock("key-2", KEY, timeout=5):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("slow_link")
@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("late", [False, True])
def test_a_task_cancelled_at_any_of_its_awaits_leaves_nothing(tree: Tree, late: bool) -> None:
    assert cancel_everywhere(tree, block_async, late=late, after=lambda: None) >= 2
    tree.await_line("key-2", 0)
