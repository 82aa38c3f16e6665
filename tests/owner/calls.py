"""Ways from a coroutine to synchronous code, and a loop to try them in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async

from distlock.owner.owner import Owner, current

#: A way from a coroutine to synchronous code.
AsgirefCall = Callable[[Callable[[], Any]], Awaitable[Any]]


async def owner() -> Owner:
    return current()


async def thread_sensitive(function: Callable[[], Any]) -> Any:
    return await sync_to_async(function, thread_sensitive=True)()


async def in_the_pool(function: Callable[[], Any]) -> Any:
    return await sync_to_async(function, thread_sensitive=False)()


async def in_a_context(function: Callable[[], Any]) -> Any:
    """As Django's ASGI handler does for every request."""
    async with ThreadSensitiveContext():
        return await sync_to_async(function)()


async def nested(function: Callable[[], Any]) -> Any:
    """Down, up and down again, as a sync middleware around an async view does."""

    async def inner() -> Any:
        return await sync_to_async(function)()

    return await sync_to_async(async_to_sync(inner))()


async def up_again(function: Callable[[], Any]) -> Any:
    async def inner() -> Any:
        return function()

    return await sync_to_async(async_to_sync(inner), thread_sensitive=False)()


class QuickExecutor(ThreadPoolExecutor):
    """Its thread is always quicker than the task, which is still on its way to the await."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(*args, **kwargs)
        wait([future], 10)
        return future


async def before_it_awaits(function: Callable[[], Any]) -> Any:
    with QuickExecutor(1) as executor:
        return await sync_to_async(function, thread_sensitive=False, executor=executor)()


CALLS = [thread_sensitive, in_the_pool, in_a_context, nested, up_again, before_it_awaits]
asgiref_calls = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 20))
