"""Threads and tasks take each lock by the same call, and see the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from distlock import (
    LockBusy,
    NotOwner,
    zk_leader,
    zk_lock,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.locks.lock import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.tools import MakeOwner

pytestmark = pytest.mark.usefixtures("tree")

RECIPES: dict[str, Callable[..., Lock[Any]]] = {
    "mutex": lambda **how: zk_lock("key", **how),
    "unfair": lambda **how: zk_lock("key", fair=False, **how),
    "handoff": lambda **how: zk_lock("key", handoff=3, **how),
    "read": lambda **how: zk_rwlock("key", **how).read,
    "write": lambda **how: zk_rwlock("key", **how).write,
    "semaphore": lambda **how: zk_semaphore("key", 1, **how),
    "semaphore mutex": lambda **how: zk_semaphore_mutex("key", **how),
    "multilock": lambda **how: zk_multilock("key", zk_semaphore("key-2", 1), **how),
    "leader": lambda **how: zk_leader("key", **how),
}


def in_thread(lock: Any) -> list[str]:
    """The outcomes of all that a thread can do with a lock."""
    seen = [str(lock.acquire(timeout=0))]
    if seen == ["True"]:
        lock.release()
    try:
        with lock as hold:
            seen.append(type(hold).__name__)
    except LockBusy as busy:
        seen.append(str(busy).partition(" after ")[0])
    try:
        lock.release()
    except NotOwner as refusal:
        seen.append(str(refusal))
    return seen


async def in_task(lock: Any) -> list[str]:
    """The same of a task."""
    seen = [str(await lock.aacquire(timeout=0))]
    if seen == ["True"]:
        await lock.arelease()
    try:
        async with lock as hold:
            seen.append(type(hold).__name__)
    except LockBusy as busy:
        seen.append(str(busy).partition(" after ")[0])
    try:
        await lock.arelease()
    except NotOwner as refusal:
        seen.append(str(refusal))
    return seen


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_thread_and_a_task_see_the_same_of_a_free_lock(recipe: str) -> None:
    lock = RECIPES[recipe](timeout=5)
    assert isinstance(lock, Lock)
    seen = in_thread(lock)
    assert seen == asyncio.run(in_task(lock))
    assert seen[0] == "True"
    assert len(seen) == 3


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_thread_and_a_task_see_the_same_of_a_busy_lock(
    recipe: str, make_owner: MakeOwner
) -> None:
    holder = make_owner()
    other = "write" if recipe == "read" else recipe
    theirs: Any = RECIPES[other](using="other", timeout=5)
    assert holder.now(theirs.acquire)
    lock = RECIPES[recipe](timeout=0.05)
    seen = in_thread(lock)
    assert seen == asyncio.run(in_task(lock))
    assert seen[0] == "False"
    assert len(seen) == 3
    holder.now(theirs.release)


@pytest.mark.parametrize("recipe", RECIPES)
def test_only_a_block_of_a_task_can_be_cancelled_on_a_loss(recipe: str) -> None:
    lock: Any = RECIPES[recipe](cancel_on_loss=True, timeout=5)
    with pytest.raises(TypeError, match="async with"):
        lock.acquire()
    with pytest.raises(TypeError, match="async with"):
        asyncio.run(lock.aacquire())
    with pytest.raises(TypeError, match="async with"), lock:
        pass

    async def block() -> None:
        async with lock:
            pass

    asyncio.run(block())


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_lock_is_neither_true_nor_false(recipe: str) -> None:
    """``if zk_lock(key):`` would run the body without the lock."""
    with pytest.raises(TypeError, match=r"with lock.*if lock\.acquire\(\)"):
        bool(RECIPES[recipe]())
