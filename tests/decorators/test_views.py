"""``@zk_locked`` on views: functions, classes, sync and async, and several locks on one view.

Under ``method_decorator`` the inspected signature still shows ``self``, and URL captures arrive as
keyword arguments. Requests go through Django's own handler, as in production.
"""

# ruff: noqa: ARG001 - the views and functions here are called for their locks

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import wraps
from io import BytesIO
from typing import Any

import pytest
from django.http import (
    FileResponse,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    StreamingHttpResponse,
)
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.generic import TemplateView
from pytest_django import Settings

from distlock import zk_lock, zk_locked
from tests.kit.helpers import eventually
from tests.testproject.elsewhere import held_elsewhere, in_line


def answer(sku: str, *others: str) -> HttpResponse:
    """Tell which locks the view holds."""
    return JsonResponse({key: zk_lock(key).held for key in (f"stock:{sku}", *others)})


@zk_locked("stock:<sku>", timeout=0)
def function(request: HttpRequest, sku: str) -> HttpResponse:
    return answer(sku)


@zk_locked("stock:<sku>", timeout=0)
async def async_function(request: HttpRequest, sku: str) -> HttpResponse:
    before = zk_lock(f"stock:{sku}").held
    await asyncio.sleep(0)
    return JsonResponse({f"stock:{sku}": before and zk_lock(f"stock:{sku}").held})


@zk_locked("till", timeout=0)
@zk_locked("stock:<sku>", timeout=0)
def stacked(request: HttpRequest, sku: str) -> HttpResponse:
    return answer(sku, "till")


@method_decorator(zk_locked("stock:<sku>", timeout=0), name="dispatch")
class Dispatch(View):
    def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        return answer(sku)


@method_decorator([never_cache, zk_locked("stock:<sku>", timeout=0)], name="dispatch")
class DispatchOfTwo(View):
    def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        return answer(sku)


@method_decorator(
    [zk_locked("till", timeout=0), zk_locked("stock:<sku>", timeout=0)], name="dispatch"
)
class DispatchOfTwoLocks(View):
    def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        return answer(sku, "till")


def transparent(view: Any) -> Any:
    """Do nothing, as many a decorator does for most requests."""

    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper


@method_decorator([zk_locked("stock:<sku>", timeout=0), transparent], name="dispatch")
class DispatchAboveAnother(View):
    def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        return answer(sku)


@method_decorator([zk_locked("stock:<sku>", timeout=0), transparent], name="dispatch")
class AsyncDispatchAboveAnother(View):
    async def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        await asyncio.sleep(0)
        return answer(sku)


class AsyncOwnDispatch(View):
    @zk_locked("stock:<sku>", timeout=0)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, **kwargs)

    async def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        await asyncio.sleep(0)
        return answer(sku)


class OwnDispatch(View):
    @zk_locked("stock:<sku>", timeout=0)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        return answer(sku)


class OneMethod(View):
    @zk_locked("stock:<sku>", timeout=0)
    def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        return answer(sku)


class OneMethodDecorated(View):
    @method_decorator(zk_locked("stock:<sku>", timeout=0))
    def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        return answer(sku)


@method_decorator(zk_locked("stock:<sku>", timeout=0), name="dispatch")
class Generic(TemplateView):
    def render_to_response(self, context: dict[str, Any], **options: Any) -> HttpResponse:
        return answer(context["sku"])


@method_decorator(zk_locked("stock:<sku>", timeout=0), name="dispatch")
class AsyncDispatch(View):
    async def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        await asyncio.sleep(0)
        return answer(sku)


class AsyncMethod(View):
    @zk_locked("stock:<sku>", timeout=0)
    async def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        await asyncio.sleep(0)
        return answer(sku)


VIEWS: dict[str, Any] = {
    "function": function,
    "async-function": async_function,
    "stacked": stacked,
    "dispatch": Dispatch.as_view(),
    "dispatch-of-two": DispatchOfTwo.as_view(),
    "dispatch-of-two-locks": DispatchOfTwoLocks.as_view(),
    "own-dispatch": OwnDispatch.as_view(),
    "one-method": OneMethod.as_view(),
    "one-method-decorated": OneMethodDecorated.as_view(),
    "generic": Generic.as_view(),
    "async-dispatch": AsyncDispatch.as_view(),
    "async-method": AsyncMethod.as_view(),
    "dispatch-above-another": DispatchAboveAnother.as_view(),
    "async-dispatch-above-another": AsyncDispatchAboveAnother.as_view(),
    "async-own-dispatch": AsyncOwnDispatch.as_view(),
}
urlpatterns = [path(f"{name}/<sku>/", view) for name, view in VIEWS.items()]
every_view = pytest.mark.parametrize("view", VIEWS)


@pytest.fixture(autouse=True)
def _site(distlock_settings: Settings) -> Iterator[None]:
    distlock_settings.ROOT_URLCONF = __name__
    distlock_settings.MIDDLEWARE = []
    yield
    eventually(lambda: in_line("stock:42") == in_line("till") == 0)


@every_view
def test_it_holds_the_lock_that_the_url_names(client: Client, view: str) -> None:
    held = client.get(f"/{view}/42/").json()
    assert held["stock:42"]
    assert all(held.values())


@every_view
def test_it_holds_the_lock_in_an_async_stack(view: str) -> None:
    held = asyncio.run(AsyncClient().get(f"/{view}/42/")).json()
    assert held["stock:42"]
    assert all(held.values())


@every_view
def test_it_answers_423_when_the_lock_is_busy(client: Client, view: str) -> None:
    with held_elsewhere("stock:42"):
        assert client.get(f"/{view}/42/").status_code == 423
        assert client.get(f"/{view}/43/").status_code == 200


@every_view
def test_it_answers_423_in_an_async_stack(view: str) -> None:
    with held_elsewhere("stock:42"):
        assert asyncio.run(AsyncClient().get(f"/{view}/42/")).status_code == 423


@pytest.mark.parametrize("view", ["stacked", "dispatch-of-two-locks"])
def test_the_outer_lock_of_two_is_released_when_the_inner_one_is_busy(
    client: Client, view: str
) -> None:
    with held_elsewhere("stock:42"):
        assert client.get(f"/{view}/42/").status_code == 423
        eventually(lambda: in_line("till") == 0)


def test_the_other_decorator_of_two_works_too(client: Client) -> None:
    assert "no-store" in client.get("/dispatch-of-two/42/")["Cache-Control"]


# --- a body that runs after the release ----------------------------------------------------------


@zk_locked("report")
def streamed(request: HttpRequest) -> HttpResponseBase:
    return StreamingHttpResponse(iter([b"rows"]))


@zk_locked("report")
async def async_streamed(request: HttpRequest) -> HttpResponseBase:
    return StreamingHttpResponse(iter([b"rows"]))


@zk_locked("report")
def of_a_file(request: HttpRequest) -> HttpResponseBase:
    return FileResponse(BytesIO(b"rows"))


@pytest.mark.usefixtures("distlock_settings")
def test_a_developer_is_warned_of_a_body_that_runs_after_the_release(settings: Settings) -> None:
    request = HttpRequest()
    streamed(request)  # nobody else is warned: here warnings are errors
    settings.DEBUG = True
    of_a_file(request)
    with pytest.warns(RuntimeWarning, match=r"streamed returns a StreamingHttpResponse"):
        streamed(request)
    with pytest.warns(RuntimeWarning, match=r"Take the lock in the body"):
        asyncio.run(async_streamed(request))
