"""What the middleware answers for a lock that a view could not get, in sync and async stacks."""

# ruff: noqa: ARG001 - the views and functions here are called for their locks

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.test import AsyncClient, Client
from django.urls import path
from pytest_django import Settings

from distlock import LockBusy, LockLost, zk_lock, zk_locked
from distlock.checks import MIDDLEWARE
from distlock_chaos.ports import free_ports
from tests.testproject.elsewhere import held_elsewhere

pytestmark = pytest.mark.engines("zookeeper", "redis")


def busy_inside(request: HttpRequest) -> HttpResponse:
    with zk_lock("stock:42", timeout=0):
        return HttpResponse("sold")


async def busy_inside_async(request: HttpRequest) -> HttpResponse:
    async with zk_lock("stock:42", timeout=0):
        return HttpResponse("sold")


@zk_locked("stock:42", timeout=0)
def busy_outside(request: HttpRequest) -> HttpResponse:
    return HttpResponse("sold")


@zk_locked("stock:42", timeout=0, on_busy="raise")
def told_to_raise(request: HttpRequest) -> HttpResponse:
    return HttpResponse("sold")


def fails(request: HttpRequest) -> HttpResponse:
    with zk_lock("stock:42"):
        raise ZeroDivisionError


async def fails_async(request: HttpRequest) -> HttpResponse:
    async with zk_lock("stock:42"):
        raise ZeroDivisionError


def loses(request: HttpRequest) -> HttpResponse:
    raise LockLost


@zk_locked("stock:42", timeout=0)
async def busy_outside_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse("sold")


VIEWS: dict[str, Callable[..., Any]] = {
    view.__name__: view
    for view in (busy_inside, busy_inside_async, busy_outside, busy_outside_async, told_to_raise)
}
urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]
urlpatterns += [
    path("fails/", fails),
    path("fails_async/", fails_async),
    path("loses/", loses),
]
every_view = pytest.mark.parametrize("view", VIEWS)


def sync_get(url: str, **options: Any) -> HttpResponseBase:
    return Client().get(url, **options)


def async_get(url: str, **options: Any) -> HttpResponseBase:
    return asyncio.run(AsyncClient().get(url, **options))


both_stacks = pytest.mark.parametrize("get", [sync_get, async_get], ids=["sync", "async"])


@pytest.fixture(autouse=True)
def _site(distlock_settings: Settings) -> None:
    distlock_settings.ROOT_URLCONF = __name__
    distlock_settings.MIDDLEWARE = [MIDDLEWARE]


def use(settings: Settings, **options: Any) -> None:
    settings.DISTLOCK = {"default": {**settings.DISTLOCK["default"], **options}}


@pytest.fixture
def away(distlock_settings: Settings) -> None:
    (port,) = free_ports(1)
    use(distlock_settings, HOSTS=f"127.0.0.1:{port}", CONNECT_TIMEOUT=0.3, RETRY_AFTER=7)


@both_stacks
@every_view
def test_a_free_lock_changes_nothing(get: Any, view: str) -> None:
    response = get(f"/{view}/")
    assert (response.status_code, response.content) == (200, b"sold")
    assert "Retry-After" not in response
    assert "Cache-Control" not in response


@both_stacks
@every_view
def test_a_busy_lock_is_423_with_the_time_to_come_back(
    distlock_settings: Settings, get: Any, view: str
) -> None:
    use(distlock_settings, RETRY_AFTER=7)
    with held_elsewhere("stock:42"):
        response = get(f"/{view}/")
    assert response.status_code == 423
    assert 7 <= int(response["Retry-After"]) <= 14
    assert response["Cache-Control"] == "no-store"


@both_stacks
@every_view
@pytest.mark.usefixtures("away")
def test_a_server_that_is_away_is_503(get: Any, view: str) -> None:
    response = get(f"/{view}/")
    assert response.status_code == 503
    assert 7 <= int(response["Retry-After"]) <= 14
    assert response["Cache-Control"] == "no-store"


@both_stacks
def test_without_it_the_error_500_says_what_is_missing(
    distlock_settings: Settings, get: Any
) -> None:
    distlock_settings.MIDDLEWARE = []
    with held_elsewhere("stock:42"), pytest.raises(LockBusy) as raised:
        get("/busy_inside/")
    (note,) = raised.value.__notes__
    assert f"{MIDDLEWARE} is not in MIDDLEWARE." in note
    assert "423" in note


@both_stacks
@pytest.mark.parametrize("view", ["fails", "fails_async"])
def test_an_exception_of_the_view_comes_through(get: Any, view: str) -> None:
    with pytest.raises(ZeroDivisionError):
        get(f"/{view}/")
    assert zk_lock("stock:42").acquire(timeout=5)
    zk_lock("stock:42").release()


@both_stacks
def test_a_lost_lock_is_no_polite_refusal(get: Any) -> None:
    with pytest.raises(LockLost):
        get("/loses/")


@both_stacks
def test_it_answers_where_only_the_view_was_refused(get: Any) -> None:
    assert get("/no-such-page/").status_code == 404


OWN_PAGES = {
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "OPTIONS": {
        "loaders": [
            (
                "django.template.loaders.locmem.Loader",
                {"distlock/423.html": "Sorry, {{ user }}"},
            )
        ],
        "context_processors": ["django.contrib.auth.context_processors.auth"],
    },
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("client_class", [Client, AsyncClient])
@every_view
def test_a_page_of_the_site_may_name_the_user(
    distlock_settings: Settings, client_class: type[Client | AsyncClient], view: str
) -> None:
    distlock_settings.TEMPLATES = [OWN_PAGES]
    distlock_settings.MIDDLEWARE = [
        MIDDLEWARE,
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ]
    client: Any = client_class()
    client.force_login(User.objects.create_user("Ada"))

    def get() -> Any:
        response = client.get(f"/{view}/")
        return asyncio.run(response) if client_class is AsyncClient else response

    with held_elsewhere("stock:42"):
        response = get()
    assert (response.status_code, response.content) == (423, b"Sorry, Ada")
