"""Names the request to those who inspect its locks, and answers for busy ones.

::

    MIDDLEWARE = ["distlock.middleware.DistlockMiddleware", …]

Put it first, so that it covers everything that a request does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

from .conf import Configuration, warn_unless_installed
from .locks.held_permits import held_by, release_leftovers
from .logs.loggers import logger
from .owner.owner import Owner, current, label
from .responses import is_refused, refusal
from .transactions import reclaim_transactions

#: The seconds between two checks whether the code of a cancelled request has ended.
LOOK_SECONDS: Final = 0.1


class DistlockMiddleware:
    """Label the holder, turn `LockBusy` into 423 and `LockUnavailable` into 503, release leftovers.

    A request that gives way in a deadlock (`DeadlockDetected`) gets the answer of a busy lock.
    The label is the method and the route, such as ``GET /buy/<sku>/``, since a path may hold a
    secret; with the setting ``LABEL = "path"`` it is the path, never the query string.
    A lock that a request leaves held would stay with its worker for ever: the middleware releases
    it and logs an error.
    It works in sync and async stacks, and opens no connection itself.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        warn_unless_installed("DistlockMiddleware", stacklevel=2)
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        # Django calls a synchronous hook of an async stack in another thread.
        self.process_view = self._aprocess_view if self.is_async else self._process_view
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        if self.is_async:
            return self._acall(request)
        with self._serving(request):
            return self.get_response(request)

    async def _acall(self, request: HttpRequest) -> HttpResponse:
        with self._serving(request):
            response: HttpResponse = await self.get_response(request)
        return response

    @contextmanager
    def _serving(self, request: HttpRequest) -> Iterator[None]:
        """Name a request while it is served, and release its leftovers after that."""
        owner = current()
        before = held_by(owner)
        name = _Name(request)
        with label(name.for_alias):
            try:
                yield
            finally:
                name.end()
                # A sync view of an async stack runs on after its client has gone away.
                if self.is_async and owner.has_running_calls:
                    _later.add(task := asyncio.create_task(_release_later(owner, before, name)))
                    task.add_done_callback(_later.discard)
                else:
                    release_leftovers(owner, name, keep=before, logger=logger)

    def _process_view(self, request: HttpRequest, view: Any, *arguments: Any) -> None:
        """Let a locked view open its transactions inside its lock."""
        reclaim_transactions(view)

    async def _aprocess_view(self, request: HttpRequest, view: Any, *arguments: Any) -> None:
        reclaim_transactions(view)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer for a view that could not get a lock."""
        if is_refused(exception):
            return refusal(request, exception)
        return None


class _Name:
    """The name of one request: Django finds its route after the middleware has begun."""

    def __init__(self, request: HttpRequest) -> None:
        self._request: HttpRequest | None = request
        self._path = f"{request.method} {request.path}"
        self._route = request.method or ""

    def for_alias(self, conf: Configuration) -> str:
        return self._path if conf.label == "path" else str(self)

    def end(self) -> None:
        """Drop the request, since a task of the view may keep this name."""
        self._route, self._request = str(self), None

    def __str__(self) -> str:
        match = self._request and self._request.resolver_match
        return f"{self._route} /{match.route or ''}" if match else self._route


#: The event loop itself does not keep its tasks.
_later: set[asyncio.Task[None]] = set()


async def _release_later(owner: Owner, before: Collection[object], name: _Name) -> None:
    """Wait for the running view, then release leftovers."""
    while owner.has_running_calls:  # noqa: ASYNC110 - a thread that comes to its end tells nobody
        await asyncio.sleep(LOOK_SECONDS)
    release_leftovers(owner, name, keep=before, logger=logger)
