"""Who looks at a lock reads the method and the path of the request that holds it.

Never the query string: it may hold what nobody else should read (DESIGN 4).
"""

# ruff: noqa: ARG001 - the views and functions here are called for their locks

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, Client
from django.urls import path

from distlock import LockBusy, zk_lock, zk_locked
from distlock.checks import MIDDLEWARE
from tests.helpers import raw_client

if TYPE_CHECKING:
    from pytest_django import Settings

    from distlock.testing.server import ZooKeeper

inside, leave, together = Event(), Event(), Barrier(2)


def label_of(key: str) -> str:
    holder = zk_lock(key).holder()
    return holder.label if holder else "nobody"


@zk_locked("stock:<sku>")
def buy(request: HttpRequest, sku: str) -> HttpResponse:
    return JsonResponse({"label": label_of(f"stock:{sku}")})


@zk_locked("stock:<sku>")
async def buy_async(request: HttpRequest, sku: str) -> HttpResponse:
    return JsonResponse({"label": await sync_to_async(label_of)(f"stock:{sku}")})


@zk_locked("stock:<sku>")
def buy_together(request: HttpRequest, sku: str) -> HttpResponse:
    together.wait(10)
    return JsonResponse({"label": label_of(f"stock:{sku}")})


def refused(busy: LockBusy, request: HttpRequest, sku: str) -> HttpResponse:
    assert busy.holder is not None
    return HttpResponse(busy.holder.label, status=423)


@zk_locked("stock:<sku>", timeout=0, on_busy=refused)
def hold(request: HttpRequest, sku: str) -> HttpResponse:
    inside.set()
    leave.wait(10)
    return HttpResponse("sold")


urlpatterns = [
    path("buy/<sku>/", buy),
    path("buy-async/<sku>/", buy_async),
    path("buy-together/<sku>/", buy_together),
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
def test_the_holder_is_named_by_method_and_path_without_the_query(post: Any, view: str) -> None:
    assert post(f"/{view}/42/?token=secret")["label"] == f"POST /{view}/42/"


def test_the_label_ends_with_the_request() -> None:
    assert sync_post("/buy/42/")["label"]
    with zk_lock("stock:42"):
        assert label_of("stock:42") == ""


def test_the_query_string_is_nowhere_in_the_node(zookeeper: ZooKeeper, namespace: str) -> None:
    with ThreadPoolExecutor(1) as pool, raw_client(zookeeper.hosts) as client:
        holding = pool.submit(Client().get, "/hold/42/?token=secret")
        assert inside.wait(10)
        parent = f"{namespace}/stock:42"
        (node,) = client.get_children(parent)
        data, _ = client.get(f"{parent}/{node}")
        leave.set()
        assert holding.result(10).status_code == 200
    assert b"GET /hold/42/" in data
    assert b"secret" not in data


def test_requests_at_the_same_time_have_each_their_own_label() -> None:
    urls = ["/buy-together/1/", "/buy-together/2/"]
    with ThreadPoolExecutor(2) as pool:
        labels = [said["label"] for said in pool.map(sync_post, urls)]
    assert labels == [f"POST {url}" for url in urls]


def test_the_one_refused_learns_which_request_holds_the_lock() -> None:
    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(Client().get, "/hold/42/?token=secret")
        assert inside.wait(10)
        second = Client().post("/hold/42/")
        leave.set()
        assert holding.result(10).content == b"sold"
    assert (second.status_code, second.content) == (423, b"GET /hold/42/")
