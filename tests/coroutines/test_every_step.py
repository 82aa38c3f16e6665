"""A task that is cancelled at any of its awaits leaves nothing, whatever the recipe (promise 4).

Before the await and after it. What threads are interrupted at is in tests/interrupts.
"""

from __future__ import annotations

import asyncio
import itertools
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from typing import Any

import pytest

from distlock import LockBusy, zk_lock, zk_locked, zk_semaphore
from distlock.owner.owner import current
from tests.interrupts.recipes import KEY, RECIPES, nothing_is_left
from tests.kit.tools import MakeOwner, Tree, await_connection, held_back

Call = Callable[[], Awaitable[None]]

pytestmark = pytest.mark.deep


@types.coroutine
def cancelled_at(
    step: int, coroutine: Coroutine[Any, Any, bool], *, late: bool
) -> Generator[Any, Any, bool]:
    """Run a coroutine and cancel its task at its await number `step`.

    :param late: when what it awaits has come, and just before the task goes on
    """
    task = asyncio.current_task()
    assert task is not None
    error: BaseException | None = None
    for number in itertools.count(1):
        try:
            awaited = coroutine.send(None) if error is None else coroutine.throw(error)
        except StopIteration as done:
            return bool(done.value)
        error = None
        if number == step and late and awaited is not None:
            awaited.add_done_callback(lambda _: task.cancel())
        elif number == step:
            task.cancel()
        try:
            yield awaited
        except BaseException as thrown:  # noqa: BLE001 - goes on in the coroutine
            error = thrown
    raise AssertionError("unreachable")


def cancel_everywhere(call: Call, *, late: bool, after: Callable[[], None]) -> int:
    """Cancel a call at each of its awaits, and return how many there are."""
    session = await_connection()

    async def through(step: int) -> bool:
        async def called() -> bool:
            with ExitStack() as until_it_awaits:
                until_it_awaits.enter_context(held_back(session))  # or it might know at once
                asyncio.get_running_loop().call_soon(until_it_awaits.close)
                await call()
            assert not current().held
            return True

        with suppress(asyncio.CancelledError):
            return await cancelled_at(step, called(), late=late)
        assert not current().held
        return False

    for step in itertools.count(1):
        got_through = asyncio.run(through(step))
        after()
        if got_through:
            return step - 1
    raise AssertionError("unreachable")


def block_of(*locks: Callable[..., Any]) -> Call:
    async def block() -> None:
        async with AsyncExitStack() as stack:
            for lock in locks:
                await stack.enter_async_context(lock(timeout=5))
            await asyncio.sleep(0)

    return block


async def without_a_block() -> None:
    lock = zk_lock(KEY, timeout=5)
    await lock.aacquire()
    await lock.arelease()


async def several_leases() -> None:
    some = zk_semaphore(KEY, 3, timeout=5)
    await some.aacquire(leases=2)
    await some.arelease(2)


@zk_locked("key", timeout=5)
async def decorated() -> None:
    await asyncio.sleep(0)


CALLS: dict[str, Call] = {
    **{recipe: block_of(lock) for recipe, lock in RECIPES.items()},
    "a writer that reads": block_of(RECIPES["write"], RECIPES["read"]),
    "without a block": without_a_block,
    "several leases": several_leases,
    "decorated": decorated,
}


@pytest.mark.usefixtures("slow_link")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_task_cancelled_at_any_of_its_awaits_leaves_nothing(
    tree: Tree, name: str, late: bool
) -> None:
    assert cancel_everywhere(CALLS[name], late=late, after=lambda: nothing_is_left(tree)) >= 1


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("recipe", ["mutex", "semaphore mutex", "semaphore", "leader", "lease"])
def test_a_refused_task_cancelled_at_any_of_its_awaits_leaves_nothing(
    tree: Tree, make_owner: MakeOwner, recipe: str, late: bool
) -> None:
    make: Callable[..., Any] = RECIPES[recipe]
    if recipe == "semaphore":
        make = partial(zk_semaphore, KEY, 1)
    theirs = make(using="other", **({"owner": "another"} if recipe == "lease" else {}))
    owner = make_owner()
    assert owner.now(theirs.acquire)

    async def refused() -> None:
        with suppress(LockBusy):
            async with make(timeout=0.01):
                pass

    def still_held() -> None:
        assert owner.now(lambda: theirs.held)

    assert cancel_everywhere(refused, late=late, after=still_held) >= 1
    owner.now(theirs.release)
    nothing_is_left(tree)
