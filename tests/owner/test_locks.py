"""Reentry over calls, on a real lock: whoever awaits may re-enter, a sibling never."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async

from distlock import NotOwner, zk_lock
from tests.owner.calls import run

pytestmark = pytest.mark.usefixtures("distlock_settings")

modes = pytest.mark.parametrize("thread_sensitive", [True, False])


def try_once() -> bool:
    """Take the lock and give it back; True if that went at once."""
    lock = zk_lock("k")
    taken = lock.acquire(blocking=False)
    if taken:
        lock.release()
    return taken


@modes
def test_a_call_re_enters_the_lock_of_its_task(thread_sensitive: bool) -> None:
    async def main() -> None:
        async with zk_lock("k"):
            assert await sync_to_async(try_once, thread_sensitive=thread_sensitive)()

    run(main)


@modes
def test_a_sibling_is_refused_over_a_call(thread_sensitive: bool) -> None:
    async def main() -> None:
        async with zk_lock("k"):
            call = sync_to_async(try_once, thread_sensitive=thread_sensitive)
            assert not any(await asyncio.gather(call(), call()))

    run(main)


def test_a_lock_taken_in_a_call_is_held_by_the_task_and_released_by_it() -> None:
    async def main() -> None:
        lock = zk_lock("k")
        assert await sync_to_async(lock.acquire)()
        assert lock.held
        await lock.arelease()
        assert not await sync_to_async(lambda: lock.held)()

    run(main)


def test_a_sync_view_under_asgi_re_enters_over_two_calls() -> None:
    """As Django runs a sync view that calls an async helper that touches the ORM."""

    async def helper() -> bool:
        return await sync_to_async(try_once)()

    def view() -> bool:
        with zk_lock("k"):
            return async_to_sync(helper)()

    async def request() -> bool:
        async with ThreadSensitiveContext():
            return await sync_to_async(view)()

    async def main() -> None:
        assert await asyncio.create_task(request())
        assert await asyncio.gather(request())

    run(main)


def test_a_child_task_cannot_release_its_parents_lock() -> None:
    async def main() -> None:
        async with zk_lock("k") as hold:
            with pytest.raises(NotOwner):
                await asyncio.create_task(zk_lock("k").arelease())
            await asyncio.to_thread(hold.verify)

    run(main)


@modes
def test_a_call_whose_task_was_cancelled_keeps_its_lock_to_the_end_of_its_block(
    thread_sensitive: bool,
) -> None:
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()
    found: list[object] = []

    def work() -> None:
        with zk_lock("k") as hold:
            entered.set()
            leave.wait(10)
            found.extend([zk_lock("k").held, try_once(), hold.released])
        found.append(hold.released)
        left.set()

    async def main() -> None:
        task = asyncio.create_task(sync_to_async(work, thread_sensitive=thread_sensitive)())
        await asyncio.to_thread(entered.wait, 10)
        task.cancel()
        await asyncio.wait([task])
        assert await zk_lock("k").aacquire(blocking=False) is False
        leave.set()
        await asyncio.to_thread(left.wait, 10)
        async with zk_lock("k", timeout=15):
            assert found == [True, True, False, True]

    run(main)
