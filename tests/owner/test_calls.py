"""A call of sync code over asgiref belongs to the task that awaits it, and to no sibling.

Two ``sync_to_async`` calls may share a thread.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import sync_to_async

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
    run,
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
