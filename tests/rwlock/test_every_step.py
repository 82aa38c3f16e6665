"""An exception at every single step of a read/write lock leaves nothing (promise 4).

By the technique, and with the exceptions, of tests/deadline/test_every_step.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from distlock import LockBusy, zk_rwlock
from tests.deadline.test_every_step import (
    KEY,
    SoftLimit,
    cancel_everywhere,
    interrupt_everywhere,
)
from tests.kit.tools import Tree

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("tree")]


def read() -> None:
    with suppress(LockBusy), zk_rwlock(KEY, timeout=0).read:
        pass


def write() -> None:
    with suppress(LockBusy), zk_rwlock(KEY, timeout=0).write:
        pass


def read_inside_write() -> None:
    lock = zk_rwlock(KEY, timeout=0)
    with suppress(LockBusy), lock.write, lock.read:
        pass


@pytest.fixture
def parents(tree: Tree) -> None:
    """The parents of the lock, which the server does not remove."""
    with zk_rwlock(KEY).read:
        tree.client.create(f"{tree.path(KEY)}/keeps-the-parents", b"")
    tree.await_line(KEY, 0)


@pytest.mark.usefixtures("parents")
def test_an_exception_before_any_line_of_a_writer_that_reads_leaves_nothing(tree: Tree) -> None:
    """One that only reads or writes is in tests/interrupts."""
    steps = interrupt_everywhere(tree, read_inside_write, SoftLimit)
    assert len(steps) > 80
    assert {"rwlock.py", "mutex.py", "contender.py"} <= {step.partition(":")[0] for step in steps}


async def read_inside_write_async() -> None:
    lock = zk_rwlock(KEY, timeout=5)
    async with lock.write, lock.read:
        await asyncio.sleep(0)


@pytest.mark.usefixtures("slow_link")
@pytest.mark.usefixtures("parents")
@pytest.mark.parametrize("late", [False, True])
def test_a_task_cancelled_at_any_of_its_awaits_leaves_nothing(tree: Tree, late: bool) -> None:
    call: Callable[[], Awaitable[None]] = read_inside_write_async
    assert cancel_everywhere(tree, call, late=late, after=lambda: None) >= 2
