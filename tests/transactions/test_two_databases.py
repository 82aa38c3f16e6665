"""Locked views on a site with two databases that both have ``ATOMIC_REQUESTS``.

Django opens a transaction for each database around the view, one around the other, so that one
commits while the other is still open.
"""

# ruff: noqa: ARG001 - the views are called for their locks

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from pytest_django import DjangoDbBlocker, Settings

from distlock import LockInTransaction, zk_lock, zk_locked
from tests.fencing.conftest import databases, sqlite
from tests.kit.helpers import eventually
from tests.testproject.elsewhere import in_line

#: What the hooks of the last request have seen.
seen: dict[str, Any] = {}


@zk_locked("stock:<sku>", timeout=0)
def reindex(sku: str) -> None:
    seen["held"] = zk_lock(f"stock:{sku}").held
    seen["open"] = open_databases()


def open_databases() -> list[str]:
    return [alias for alias in connections if connections[alias].in_atomic_block]


def answer(request: HttpRequest, sku: str) -> HttpResponse:
    """Tell which transactions are open, and note whether the lock is held at their end."""

    def note(alias: str) -> None:
        seen[alias] = zk_lock(f"stock:{sku}").held

    for alias in connections:
        transaction.on_commit(partial(note, alias), using=alias)
    return JsonResponse({"open": open_databases()})


def transparent(view: Any) -> Any:
    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper


def unlocked(request: HttpRequest, sku: str) -> HttpResponse:
    transaction.on_commit(lambda: reindex(sku))
    return HttpResponse()


def too_late(request: HttpRequest, sku: str) -> HttpResponse:
    reindex(sku)
    return HttpResponse()


@method_decorator(zk_locked("stock:<sku>", timeout=0), name="dispatch")
class Dispatch(View):
    def post(self, request: HttpRequest, sku: str) -> HttpResponse:
        return answer(request, sku)


locked = zk_locked("stock:<sku>", timeout=0)
exempt = transaction.non_atomic_requests
exempt_other = transaction.non_atomic_requests(using="other")

LOCKED: dict[str, Any] = {
    "function": locked(transparent(answer)),
    "dispatch": Dispatch.as_view(),
}
EXEMPT: dict[str, Any] = {
    "exempt-function": exempt(locked(transparent(answer))),
    "exempt-dispatch": exempt(Dispatch.as_view()),
    "exempt-behind-another": transparent(exempt(transparent(locked(transparent(answer))))),
    "exempt-below": locked(exempt(transparent(answer))),
}
VIEWS = {
    **LOCKED,
    **EXEMPT,
    "exempt-both": exempt_other(exempt(locked(transparent(answer)))),
    "exempt-above-and-below": exempt_other(locked(exempt(transparent(answer)))),
    "unlocked": unlocked,
    "too-late": too_late,
}
urlpatterns = [path(f"{name}/<sku>/", view) for name, view in VIEWS.items()]


@pytest.fixture(autouse=True)
def _site(
    distlock_settings: Settings, tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    distlock_settings.ROOT_URLCONF = __name__
    distlock_settings.MIDDLEWARE = ["distlock.middleware.DistlockMiddleware"]
    seen.clear()
    options = {
        alias: {**sqlite(tmp_path / alias), "ATOMIC_REQUESTS": True}
        for alias in ("default", "other")
    }
    with databases(django_db_blocker, **options):
        yield
    eventually(lambda: in_line("stock:42") == 0)


def post(view: str) -> Any:
    return Client().post(f"/{view}/42/").json()


def post_in_async_stack(view: str) -> Any:
    async def ask() -> Any:
        return await AsyncClient().post(f"/{view}/42/")

    return asyncio.run(ask()).json()


both_stacks = pytest.mark.parametrize("post", [post, post_in_async_stack])


@pytest.mark.parametrize("view", LOCKED)
def test_a_locked_view_commits_both_inside_its_lock(view: str) -> None:
    assert post(view) == {"open": ["default", "other"]}
    assert seen == {"default": True, "other": True}


@both_stacks
@pytest.mark.parametrize("view", EXEMPT)
def test_a_view_that_is_exempt_for_one_commits_the_other_inside_its_lock(
    view: str, post: Callable[[str], Any]
) -> None:
    assert post(view) == {"open": ["other"]}
    assert seen == {"default": True, "other": True}


@pytest.mark.parametrize("view", ["exempt-both", "exempt-above-and-below"])
def test_a_view_that_is_exempt_for_both_has_no_transaction(view: str) -> None:
    assert post(view) == {"open": []}


@pytest.mark.parametrize("view", ["too-late", "unlocked"])
def test_a_first_lock_is_refused_while_one_of_them_is_open(view: str) -> None:
    """Hooks of the inner one run between its COMMIT and that of the outer one."""
    with pytest.raises(LockInTransaction):
        Client().post(f"/{view}/42/")
    assert not seen
