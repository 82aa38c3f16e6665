"""Inside ``async_to_sync`` the owner is the thread that it blocks, but not for child tasks."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async

from distlock.owner.owner import Owner, current
from tests.owner.calls import owner, run, thread_sensitive


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
