"""What a request leaves locked is released and logged; what it did not lock is left alone.

A worker's thread lives on after the request, and with it its locks.
"""

# ruff: noqa: ARG001 - the views and functions here are called for their locks

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from celery.exceptions import SoftTimeLimitExceeded
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from pytest_django import Settings

from distlock import zk_lock, zk_semaphore
from distlock.checks import MIDDLEWARE
from distlock.locks.semaphore import Permits
from tests.kit.helpers import eventually
from tests.testproject.elsewhere import in_line

pytestmark = pytest.mark.engines("zookeeper", "redis")


def forgets(request: HttpRequest) -> HttpResponse:
    zk_lock("stock:42").acquire()
    return HttpResponse("sold")


def forgets_twice(request: HttpRequest) -> HttpResponse:
    zk_lock("stock:42").acquire()
    zk_lock("stock:42").acquire()
    zk_lock("till").acquire()
    return HttpResponse("sold")


def forgets_and_fails(request: HttpRequest) -> HttpResponse:
    zk_lock("stock:42").acquire()
    raise ZeroDivisionError


async def forgets_async(request: HttpRequest) -> HttpResponse:
    await zk_lock("stock:42").aacquire()
    return HttpResponse("sold")


async def forgets_async_and_fails(request: HttpRequest) -> HttpResponse:
    await zk_lock("stock:42").aacquire()
    raise ZeroDivisionError


async def forgets_in_a_call(request: HttpRequest) -> HttpResponse:
    await sync_to_async(zk_lock("stock:42").acquire)()
    return HttpResponse("sold")


def orderly(request: HttpRequest) -> HttpResponse:
    with zk_lock("stock:42"):
        return HttpResponse("sold")


def enters_again(request: HttpRequest) -> HttpResponse:
    with zk_lock("outer", timeout=0):
        return HttpResponse("sold")


def sends(request: HttpRequest) -> HttpResponse:
    with zk_semaphore("mails", 2):
        return HttpResponse("sent")


VIEWS: dict[str, Callable[..., Any]] = {
    view.__name__: view
    for view in (
        forgets,
        forgets_twice,
        forgets_and_fails,
        forgets_async,
        forgets_async_and_fails,
        forgets_in_a_call,
        orderly,
        enters_again,
        sends,
    )
}
urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]


def sync_get(url: str) -> Any:
    return Client(raise_request_exception=False).get(url)


def async_get(url: str) -> Any:
    return asyncio.run(AsyncClient(raise_request_exception=False).get(url))


both_stacks = pytest.mark.parametrize("get", [sync_get, async_get], ids=["sync", "async"])


@pytest.fixture(autouse=True)
def _site(distlock_settings: Settings) -> None:
    distlock_settings.ROOT_URLCONF = __name__
    distlock_settings.MIDDLEWARE = [MIDDLEWARE]


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("distlock") and record.levelno >= logging.ERROR
    ]


@both_stacks
@pytest.mark.parametrize(
    ("view", "status"),
    [
        ("forgets", 200),
        ("forgets_and_fails", 500),
        ("forgets_async", 200),
        ("forgets_async_and_fails", 500),
        ("forgets_in_a_call", 200),
    ],
)
def test_a_lock_left_held_is_released_and_the_log_names_request_and_key(
    get: Any, view: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert get(f"/{view}/?token=secret").status_code == status
    eventually(lambda: in_line("stock:42") == 0)
    assert not zk_lock("stock:42").held
    (complaint,) = complaints(caplog)
    assert f"GET /{view}/ left" in complaint
    assert "'stock:42'" in complaint
    assert "secret" not in complaint


@both_stacks
def test_every_lock_left_held_is_released_however_often_it_was_acquired(
    get: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert get("/forgets_twice/").status_code == 200
    eventually(lambda: in_line("stock:42") == in_line("till") == 0)
    assert len(complaints(caplog)) == 2


@both_stacks
def test_an_orderly_request_is_not_complained_about(
    get: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert get("/orderly/").status_code == 200
    assert complaints(caplog) == []


@both_stacks
def test_the_permit_of_a_block_whose_end_was_interrupted_at_once_is_released(
    get: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception of a signal handler before the first instruction of ``__exit__``."""

    def interrupted(*_: object) -> None:
        raise SoftTimeLimitExceeded

    semaphore = zk_semaphore("mails", 2)
    with semaphore as hold:
        with monkeypatch.context() as patch:
            patch.setattr(Permits, "__exit__", interrupted)
            assert get("/sends/").status_code == 500
        hold.verify()
        assert semaphore.held == 1
        eventually(lambda: len(semaphore.participants()) == 1)
    (complaint,) = complaints(caplog)
    assert "GET /sends/ left the lock 'mails' held" in complaint


@pytest.mark.parametrize("view", ["enters_again", "forgets"])
def test_a_lock_that_the_thread_held_before_the_request_is_left_alone(view: str) -> None:
    with zk_lock("outer") as hold:
        assert sync_get(f"/{view}/").status_code == 200
        assert zk_lock("outer").held
        hold.verify()
        assert in_line("outer") == 1


def test_a_request_that_ends_in_another_task_leaves_the_locks_of_its_caller_alone() -> None:
    async def caller() -> bool:
        async with zk_lock("outer"):
            await AsyncClient().get("/forgets_async/")
            return zk_lock("outer").held

    assert asyncio.run(caller())
