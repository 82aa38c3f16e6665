"""A task that is cancelled at any of its awaits leaves nothing, whatever the recipe (promise 4).

The mutex, the read/write lock and the multi-lock have this beside their other steps:
tests/deadline/test_every_step.py, whose technique it is, tests/rwlock and tests/multilock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from distlock import (
    LockBusy,
    zk_leader,
    zk_lease,
    zk_lock,
    zk_locked,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.inspection.state import LEADER
from distlock.locks import held_permits
from tests.coroutines.tools import await_empty
from tests.deadline.test_every_step import KEY, cancel_everywhere
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection

if TYPE_CHECKING:
    Call = Callable[[], Awaitable[None]]

pytestmark = pytest.mark.deep

TTL = 600

late_or_not = pytest.mark.parametrize("late", [False, True])


async def semaphore() -> None:
    async with zk_semaphore(KEY, 3, timeout=5):
        await asyncio.sleep(0)


async def several_leases() -> None:
    some = zk_semaphore(KEY, 3, timeout=5)
    await some.aacquire(leases=2)
    await some.arelease(2)


async def semaphore_mutex() -> None:
    async with zk_semaphore_mutex(KEY, timeout=5):
        await asyncio.sleep(0)


async def leader() -> None:
    async with zk_leader(KEY, timeout=5):
        await asyncio.sleep(0)


@zk_locked("key", timeout=5)
async def decorated() -> None:
    await asyncio.sleep(0)


async def without_a_line() -> None:
    async with zk_lock(KEY, timeout=5, fair=False):
        await asyncio.sleep(0)


async def in_turns() -> None:
    async with zk_lock(KEY, timeout=5, handoff=3):
        await asyncio.sleep(0)


async def lease() -> None:
    async with zk_lease(KEY, TTL, timeout=5):
        await asyncio.sleep(0)


def everything_is_given_back(tree: Tree) -> None:
    paths = [f"{tree.path(KEY)}/{part}" for part in ("locks", "leases")]
    paths.append(f"{tree.namespace}/{LEADER}{KEY}")
    for path in paths:
        await_empty(tree, path)
    assert not any(held_permits._held.values())
    eventually(lambda: zk_lease(KEY, TTL, using="other").holder() is None, PATIENCE)


@pytest.mark.usefixtures("slow_link")
@late_or_not
@pytest.mark.parametrize(
    "call",
    [
        semaphore,
        several_leases,
        semaphore_mutex,
        leader,
        decorated,
        without_a_line,
        in_turns,
        lease,
    ],
)
def test_a_task_cancelled_at_any_of_its_awaits_leaves_nothing(
    tree: Tree, call: Call, late: bool
) -> None:
    steps = cancel_everywhere(tree, call, late=late, after=lambda: everything_is_given_back(tree))
    assert steps >= 1


def refused_by(lock: Any) -> Call:
    async def call() -> None:
        with suppress(LockBusy):
            async with lock:
                pass

    return call


REFUSED: dict[str, Callable[..., Any]] = {
    "semaphore": lambda **options: zk_semaphore(KEY, 1, **options),
    "semaphore mutex": lambda **options: zk_semaphore_mutex(KEY, **options),
    "leader": lambda **options: zk_leader(KEY, **options),
    "lease": lambda **options: zk_lease(KEY, TTL, owner="me", **options),
}


@late_or_not
@pytest.mark.parametrize("recipe", REFUSED)
def test_a_refused_task_cancelled_at_any_of_its_awaits_leaves_nothing(
    tree: Tree, make_owner: MakeOwner, recipe: str, late: bool
) -> None:
    await_connection()
    theirs = REFUSED[recipe](using="other")
    if recipe == "lease":
        theirs.owner = "another"
    make = make_owner()
    assert make.now(theirs.acquire)

    def still_held() -> None:
        assert make.now(lambda: theirs.held)

    call = refused_by(REFUSED[recipe](timeout=0.01))
    assert cancel_everywhere(tree, call, late=late, after=still_held) >= 1
    make.now(theirs.release)
    everything_is_given_back(tree)
