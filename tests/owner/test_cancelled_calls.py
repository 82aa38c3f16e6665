"""The sync code of a call runs on when its task is cancelled, and acts for nobody else."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from distlock.owner.owner import Owner, current
from tests.kit.helpers import eventually
from tests.owner.calls import AsgirefCall, in_the_pool, owner, run, thread_sensitive


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
