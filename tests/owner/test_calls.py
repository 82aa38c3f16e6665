"""A call of sync code over asgiref belongs to the task that awaits it, and to no sibling.

Two ``sync_to_async`` calls may share a thread.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async

from distlock.owner import call_stack
from distlock.owner import owner as module
from distlock.owner.owner import Owner, current
from tests.kit.helpers import eventually
from tests.owner.calls import (
    CALLS,
    AsgirefCall,
    asgiref_calls,
    before_it_awaits,
    in_the_pool,
    owner,
    run,
    thread_sensitive,
)


@asgiref_calls
def test_a_call_belongs_to_the_task_that_awaits_it(call: AsgirefCall) -> None:
    async def main() -> None:
        mine = current()
        assert await call(current) is mine
        assert await call(current) is mine
        assert current() is mine

    run(main)


@asgiref_calls
def test_a_call_whose_task_has_not_asked_before_belongs_to_it_too(call: AsgirefCall) -> None:
    async def main() -> None:
        assert await call(current) is current()

    run(main)


@asgiref_calls
def test_calls_of_siblings_are_different_owners(call: AsgirefCall) -> None:
    async def main() -> None:
        mine = current()

        async def twice() -> tuple[Owner, Owner]:
            return await call(current), await call(current)

        found = await asyncio.gather(*(twice() for _ in range(4)))
        assert all(first is second for first, second in found)
        assert len({id(first) for first, _ in found} | {id(mine)}) == 5

    run(main)


def test_calls_that_overlap_in_the_pool_are_different_owners() -> None:
    together = threading.Barrier(3)

    def meet() -> Owner:
        together.wait(10)
        found = current()
        together.wait(10)
        return found

    async def main() -> None:
        async def sibling() -> bool:
            return await in_the_pool(meet) is current()

        assert await asyncio.gather(*(sibling() for _ in range(3))) == [True] * 3

    run(main)


def test_a_task_that_gathers_its_own_calls_shares_them_with_nobody() -> None:
    async def main() -> None:
        found = await asyncio.gather(*(in_the_pool(current) for _ in range(3)))
        assert len({id(one) for one in (*found, current())}) == 4

    run(main)


def test_to_thread_calls_are_different_owners_on_one_pooled_thread() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

        async def call() -> tuple[int, Owner]:
            return await asyncio.to_thread(lambda: (threading.get_ident(), current()))

        found = await asyncio.gather(call(), call())
        assert len({number for number, _ in found}) == 1
        assert len({id(one) for _, one in found} | {id(current())}) == 3

    run(main)


def test_a_pooled_thread_does_not_keep_the_owner_of_an_earlier_call() -> None:
    """asgiref leaves its book-keeping behind in the thread."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(1)
        call = sync_to_async(current, thread_sensitive=False, executor=pool)
        assert await call() is current()
        assert await loop.run_in_executor(pool, current) is not current()
        assert await asyncio.create_task(call()) is not current()
        pool.shutdown()

    run(main)


@pytest.mark.parametrize("call", [call for call in CALLS if call is not before_it_awaits])
def test_the_task_of_a_call_is_searched_for_once(
    call: AsgirefCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes as long as there are tasks and threads."""
    searches: list[object] = []
    search = call_stack._search

    def counted(call: Any, loop: asyncio.AbstractEventLoop) -> Any:
        searches.append(call)
        return search(call, loop)

    def searches_of_a_look() -> int:
        before = len(searches)
        current()
        return len(searches) - before

    def look_often() -> None:
        eventually(lambda: not searches_of_a_look())  # the task may be on its way to the await
        assert not any(searches_of_a_look() for _ in range(5))

    async def main() -> None:
        for _ in range(2 * call_stack.KNOWN_CALLS):
            await call(look_often)
        assert searches
        assert len(call_stack._known.get()) <= call_stack.KNOWN_CALLS

    monkeypatch.setattr(call_stack, "_search", counted)
    run(main)


def test_an_owner_remembers_few_of_its_calls() -> None:
    async def main() -> None:
        for _ in range(50):
            assert await in_the_pool(current) is current()
        assert len(current()._calls) <= module.MANY_CALLS

    run(main)


# --- a task is cancelled during a call -----------------------------------------------------------


def test_an_abandoned_call_is_not_the_thread_that_it_blocks() -> None:
    """The cancelled child's code runs on in the thread that async_to_sync blocks."""
    mine = current()
    entered, abandoned = threading.Event(), threading.Event()
    found: list[Owner] = []

    def look() -> None:
        entered.set()
        abandoned.wait(10)
        found.extend([current(), current()])

    async def main() -> None:
        child = asyncio.create_task(thread_sensitive(look))
        await asyncio.to_thread(entered.wait, 10)
        child.cancel()
        with suppress(asyncio.CancelledError):
            await child
        abandoned.set()

    async_to_sync(main)()
    assert found[0] is found[1]
    assert found[0] is not mine


def test_the_call_of_a_cancelled_task_is_nobody_elses() -> None:
    async def main() -> None:
        entered, leave = threading.Event(), threading.Event()
        found: list[Owner] = []

        def stay() -> None:
            entered.set()
            leave.wait(10)
            found.append(current())

        pool = ThreadPoolExecutor(2)
        call = sync_to_async(stay, thread_sensitive=False, executor=pool)
        left = asyncio.create_task(call())
        await asyncio.to_thread(entered.wait, 10)
        left.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(left), 0.05)
        mine = await sync_to_async(current, thread_sensitive=False, executor=pool)()
        leave.set()
        with suppress(asyncio.CancelledError):
            await left
        pool.shutdown()
        assert mine is current()
        assert found[0] is not mine

    run(main)


@pytest.mark.parametrize("call", [thread_sensitive, in_the_pool])
def test_a_call_that_acted_for_its_task_does_so_after_that_was_cancelled(call: AsgirefCall) -> None:
    """A sync view under ASGI whose client goes away has its own locks to release."""
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()
    found: list[Owner] = []

    def view() -> None:
        found.append(current())
        entered.set()
        leave.wait(10)
        found.extend([current(), async_to_sync(owner)()])
        assert found[0].has_running_calls
        left.set()

    async def main() -> None:
        task = asyncio.ensure_future(call(view))
        await asyncio.to_thread(entered.wait, 10)
        task.cancel()
        await asyncio.wait([task])
        leave.set()
        assert await asyncio.to_thread(left.wait, 10)
        assert found[0] is found[1] is found[2] is not current()
        await asyncio.to_thread(eventually, lambda: not found[0].has_running_calls)

    run(main)


# --- the thread that async_to_sync blocks --------------------------------------------------------


def test_async_to_sync_belongs_to_the_thread_that_it_blocks() -> None:
    mine = current()
    assert async_to_sync(owner)() is mine


def test_a_sync_view_that_calls_up_and_back_stays_one_owner() -> None:
    mine = current()

    async def main() -> tuple[Owner, Owner]:
        return current(), await sync_to_async(current)()

    assert async_to_sync(main)() == (mine, mine)


def test_a_child_task_inside_async_to_sync_is_another_owner() -> None:
    mine = current()

    async def main() -> tuple[Owner, Owner]:
        return await asyncio.gather(owner(), owner())

    one, other = async_to_sync(main)()
    assert len({id(mine), id(one), id(other)}) == 3


def test_a_call_of_a_child_task_inside_async_to_sync_is_not_the_blocked_thread() -> None:
    """It runs in the very thread that async_to_sync blocks, on behalf of somebody else."""
    mine = current()
    place = threading.current_thread()

    def look() -> tuple[Owner, bool]:
        return current(), threading.current_thread() is place

    async def main() -> Any:
        return await asyncio.create_task(thread_sensitive(look))

    found, same_thread = async_to_sync(main)()
    assert same_thread
    assert found is not mine


def test_deep_calls_stay_one_owner() -> None:
    mine = current()

    def down(depth: int) -> Owner:
        return async_to_sync(up)(depth - 1) if depth else current()

    async def up(depth: int) -> Owner:
        return await sync_to_async(down)(depth - 1) if depth > 0 else current()

    assert down(5) is mine
    assert down(6) is mine

    async def main() -> None:
        assert await up(5) is current()
        assert await up(6) is current()

    run(main)


def test_sync_code_is_the_same_owner_before_and_after_an_inner_call() -> None:
    """asgiref's thread-local then still is that of the inner call, which ran in the same thread."""

    async def inner() -> Owner:
        return await sync_to_async(current)()

    def view() -> list[Owner]:
        up = async_to_sync(inner)
        return [current(), up(), current(), up(), current()]

    async def main() -> None:
        async with ThreadSensitiveContext():
            found = await sync_to_async(view)()
        assert found == [current()] * 5

    run(main)
    assert view() == [current()] * 5
