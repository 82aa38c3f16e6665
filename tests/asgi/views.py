"""Views that hold a lock until they are told to go on, or until their client has gone away."""

# ruff: noqa: ARG001 - the views are called for their locks

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils.decorators import async_only_middleware

from distlock import zk_lock, zk_locked
from tests.kit.helpers import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WAIT = 60


def note(key: str, said: str) -> Path:
    """A file that tells of a key, by being there."""
    return Path(os.environ["ASGI_FOLDER"], f"{key}.{said}")


def may_go(key: str) -> Callable[[], bool]:
    return note(key, "go").exists


@async_only_middleware
def notes_cancellations(
    get_response: Callable[[HttpRequest], Awaitable[HttpResponse]],
) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    """Note that a request's task was cancelled, and has ended by that."""

    async def noting(request: HttpRequest) -> HttpResponse:
        try:
            return await get_response(request)
        except asyncio.CancelledError:
            note(request.path.split("/")[2], "cancelled").touch()
            raise

    return noting


async def holds(request: HttpRequest, key: str) -> HttpResponse:
    """An async view."""
    async with zk_lock(key, timeout=WAIT) as hold:
        await until(may_go(key))
        return JsonResponse({"token": hold.token})


@zk_locked("<key>", timeout=WAIT)
async def locked(request: HttpRequest, key: str) -> HttpResponse:
    """An async view under the decorator."""
    await until(may_go(key))
    return JsonResponse({"held": zk_lock(key).held})


def holds_sync(request: HttpRequest, key: str) -> HttpResponse:
    """A sync view, which runs on in its thread when its client has gone away."""
    with zk_lock(key, timeout=WAIT) as hold:
        eventually(may_go(key), WAIT)
        hold.check()
        note(key, "done").touch()
        return JsonResponse({"token": hold.token})


def forgets_sync(request: HttpRequest, key: str) -> HttpResponse:
    """The same, and does not give the lock back."""
    zk_lock(key).acquire()
    eventually(may_go(key), WAIT)
    note(key, "done").touch()
    return JsonResponse({"held": zk_lock(key).held})


@zk_locked("<key>", timeout=0)
async def tries(request: HttpRequest, key: str) -> HttpResponse:
    return JsonResponse({"held": zk_lock(key).held})


async def leaves_work(request: HttpRequest, key: str) -> HttpResponse:
    """Answers, and leaves a task that holds the lock."""
    holding = asyncio.Event()

    async def work() -> None:
        async with zk_lock(key):
            holding.set()
            await until(may_go(key))

    _left.add(asyncio.create_task(work()))
    await holding.wait()
    return JsonResponse({"held": zk_lock(key).held})


_left: set[asyncio.Task[None]] = set()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - another process says so
        await asyncio.sleep(0.01)


urlpatterns = [
    path(f"{view.__name__}/<key>/", view)
    for view in (holds, locked, holds_sync, forgets_sync, tries, leaves_work)
]
