"""Who looks at a lock reads the method and the route of the request that holds it.

Never the query string, and the path only where the setting asks for it: both may hold what nobody
else should read, such as the token of ``/reset/<token>/``.
"""

# ruff: noqa: ARG001 - the views and functions here are called for their locks

from __future__ import annotations

import asyncio
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client
from django.urls import include, path, re_path
from pytest_django import Settings

from distlock import LockBusy, zk_lock, zk_locked
from distlock.checks import MIDDLEWARE
from distlock_chaos.server import ZooKeeper
from tests.kit.engines import tree_at

pytestmark = pytest.mark.engines("zookeeper", "redis")

inside, leave = Event(), Event()


def label_of(key: str) -> str:
    holder = zk_lock(key).holder()
    return holder.label if holder else "nobody"


@zk_locked("stock:<sku>")
def buy(request: HttpRequest, sku: str) -> HttpResponse:
    return JsonResponse({"label": label_of(f"stock:{sku}")})


@zk_locked("stock:<sku>")
async def buy_async(request: HttpRequest, sku: str) -> HttpResponse:
    return JsonResponse({"label": await sync_to_async(label_of)(f"stock:{sku}")})


def refused(busy: LockBusy, request: HttpRequest, sku: str) -> HttpResponse:
    assert busy.holder is not None
    return HttpResponse(busy.holder.label, status=423)


@zk_locked("stock:<sku>", timeout=0, on_busy=refused)
def hold(request: HttpRequest, sku: str) -> HttpResponse:
    inside.set()
    leave.wait(10)
    return HttpResponse("sold")


class LocksEarly:
    """A middleware of the site's own that takes a lock before Django has found the view."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with zk_lock("early"):
            label = label_of("early")
        response: HttpResponse = self.get_response(request)
        response.headers["label"] = label
        return response


#: What a task that outlives its request waits for, and the requests that began such tasks.
outliving = SimpleNamespace(finish=None)
seen: list[tuple[ref[HttpRequest], asyncio.Task[str]]] = []


async def begin_a_task(request: HttpRequest, sku: str) -> HttpResponse:
    async def outlive() -> str:
        await outliving.finish.wait()
        async with zk_lock("later"):
            return await sync_to_async(label_of)("later")

    seen.append((ref(request), asyncio.create_task(outlive())))
    return HttpResponse("begun")


def reset(request: HttpRequest, sku: str) -> HttpResponse:
    return buy(request, sku)


def buy_at(request: HttpRequest, shop: int, sku: str) -> HttpResponse:
    return buy(request, sku)


urlpatterns = [
    path("shop/<int:shop>/", include([path("buy/<sku>/", buy_at)])),
    re_path(r"^reset/(?P<sku>\w+)/$", reset),
    path("later/<sku>/", begin_a_task),
    path("buy/<sku>/", buy),
    path("buy-async/<sku>/", buy_async),
    path("hold/<sku>/", hold),
]


def sync_post(url: str) -> Any:
    return Client().post(url).json()


def async_post(url: str) -> Any:
    return asyncio.run(AsyncClient().post(url)).json()


both_stacks = pytest.mark.parametrize("post", [sync_post, async_post], ids=["sync", "async"])


@pytest.fixture(autouse=True)
def _site(distlock_settings: Settings) -> None:
    distlock_settings.ROOT_URLCONF = __name__
    distlock_settings.MIDDLEWARE = [MIDDLEWARE]
    inside.clear()
    leave.clear()


@both_stacks
@pytest.mark.parametrize("view", ["buy", "buy-async"])
def test_the_holder_is_named_by_method_and_route(post: Any, view: str) -> None:
    assert post(f"/{view}/42/?token=secret")["label"] == f"POST /{view}/<sku>/"


@both_stacks
@pytest.mark.parametrize("view", ["buy", "buy-async"])
def test_the_setting_names_the_path_without_the_query(
    post: Any, view: str, settings: Settings
) -> None:
    settings.DISTLOCK = {"default": {**settings.DISTLOCK["default"], "LABEL": "path"}}
    assert post(f"/{view}/42/?token=secret")["label"] == f"POST /{view}/42/"


def test_a_lock_that_is_taken_before_the_route_is_known_names_the_method(
    settings: Settings,
) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE, f"{__name__}.{LocksEarly.__name__}"]
    assert Client().post("/buy/42/").headers["label"] == "POST"


def test_a_task_that_outlives_its_request_keeps_the_name_and_not_the_request() -> None:
    async def outlive() -> tuple[str, bool]:
        answer = await AsyncClient().post("/later/42/")
        request, task = seen.pop()
        del answer
        until = time.monotonic() + 10
        while (alive := request() is not None) and time.monotonic() < until:
            gc.collect()  # the client's own loops refer to it for a moment
            await asyncio.sleep(0.01)
        finish.set()
        return await task, alive

    finish = asyncio.Event()
    outliving.finish = finish
    # pytest may handle an exception here. asgiref raises that again in its thread, and then the
    # traceback keeps the request. A thread of the test's own handles none.
    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(asyncio.run, outlive()).result(30)
    assert kept == ("POST /later/<sku>/", False)


def test_the_label_ends_with_the_request() -> None:
    assert sync_post("/buy/42/")["label"]
    with zk_lock("stock:42"):
        assert label_of("stock:42") == ""


def test_what_is_in_the_url_is_nowhere_in_the_node(zookeeper: ZooKeeper, namespace: str) -> None:
    with ThreadPoolExecutor(1) as pool, tree_at(zookeeper.hosts, namespace) as tree:
        holding = pool.submit(Client().get, "/hold/42/?token=secret")
        assert inside.wait(10)
        (node,) = tree.line("stock:42")
        data, _ = tree.client.get(f"{tree.path('stock:42')}/{node}")
        leave.set()
        assert holding.result(10).status_code == 200
    assert b"GET /hold/<sku>/" in data
    assert b"42" not in data.split(b"label")[1].split(b"since")[0]
    assert b"secret" not in data
