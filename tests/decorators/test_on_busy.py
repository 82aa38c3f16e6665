"""What a caller of a decorated function gets when the lock is busy: every policy of ``on_busy``."""

# ruff: noqa: ARG001 - the views and functions here are called for their locks

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from pytest_django import Settings

from distlock import LockBusy, zk_lock, zk_locked
from tests.kit.helpers import eventually
from tests.testproject.elsewhere import held_elsewhere, in_line

pytestmark = pytest.mark.usefixtures("distlock_settings")


@pytest.fixture
def busy(distlock_settings: Settings) -> Iterator[Event]:
    """Another thread has the lock; setting the event frees it."""
    del distlock_settings  # only its order matters
    with held_elsewhere("stock:42", work="recount") as free:
        yield free


def locked(on_busy: Any = None, **options: Any) -> Any:
    @zk_locked("stock:<sku>", **{"timeout": 0, "on_busy": on_busy, **options})
    def deduct(sku: str) -> str:
        return f"sold {sku}"

    return deduct


def locked_async(on_busy: Any = None) -> Any:
    @zk_locked("stock:<sku>", timeout=0, on_busy=on_busy)
    async def deduct(sku: str) -> str:
        return f"sold {sku}"

    return deduct


def locked_view(on_busy: Any = None) -> Any:
    @zk_locked("stock:<sku>", timeout=0, on_busy=on_busy)
    def view(request: HttpRequest, sku: str) -> HttpResponse:
        return HttpResponse(f"sold {sku}")

    return view


def locked_async_view(on_busy: Any = None) -> Any:
    @zk_locked("stock:<sku>", timeout=0, on_busy=on_busy)
    async def view(request: HttpRequest, sku: str) -> HttpResponse:
        return HttpResponse(f"sold {sku}")

    return view


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("on_busy", [None, "raise"])
def test_a_function_raises_and_says_who_has_it(on_busy: Any) -> None:
    with pytest.raises(LockBusy) as raised:
        locked(on_busy)("42")
    assert raised.value.key == "stock:42"
    assert raised.value.holder is not None
    assert raised.value.holder.label == "recount"


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("on_busy", [None, "raise"])
def test_an_async_function_raises_and_says_who_has_it(on_busy: Any) -> None:
    with pytest.raises(LockBusy) as raised:
        asyncio.run(locked_async(on_busy)("42"))
    assert raised.value.holder is not None
    assert raised.value.holder.label == "recount"


@pytest.mark.usefixtures("busy")
def test_skip_returns_none_and_a_view_answers_204(rf: RequestFactory) -> None:
    assert locked("skip")("42") is None
    assert asyncio.run(locked_async("skip")("42")) is None
    assert locked_view("skip")(rf.post("/"), sku="42").status_code == 204
    assert asyncio.run(locked_async_view("skip")(rf.post("/"), sku="42")).status_code == 204


@pytest.mark.usefixtures("busy")
def test_a_callable_gets_the_error_and_the_arguments_and_answers() -> None:
    def later(busy: LockBusy, sku: str) -> tuple[str, str]:
        return busy.key, sku

    assert locked(later)("42") == ("stock:42", "42")
    assert locked(later)(sku="42") == ("stock:42", "42")
    assert asyncio.run(locked_async(later)("42")) == ("stock:42", "42")


@pytest.mark.usefixtures("busy")
def test_an_async_callable_is_awaited_in_an_async_function() -> None:
    async def later(busy: LockBusy, sku: str) -> str:
        await asyncio.sleep(0)
        return f"later {sku}"

    assert asyncio.run(locked_async(later)("42")) == "later 42"


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("on_busy", ["raise", "skip", lambda *_: None])
def test_whatever_the_policy_the_one_refused_leaves_the_line(on_busy: Any) -> None:
    try:
        locked(on_busy)("42")
    except LockBusy:
        assert on_busy == "raise"
    eventually(lambda: in_line("stock:42") == 1)


@pytest.mark.parametrize("options", [{"timeout": None}, {"timeout": 30}])
def test_wait_is_served_once_the_lock_is_free(busy: Event, options: dict[str, Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locked("wait", **options), "42")
        eventually(lambda: in_line("stock:42") == 2)
        busy.set()
        assert waiting.result(10) == "sold 42"


@pytest.mark.parametrize("on_busy", ["Skip", "ignore", 423, True])
def test_an_unknown_policy_is_an_error_at_once(on_busy: Any) -> None:
    with pytest.raises(ValueError, match="'raise', 'wait', 'skip', 'retry', 'queue' or a callable"):
        zk_locked("stock:<sku>", on_busy=on_busy)


@pytest.mark.parametrize("on_busy", ["skip", lambda *_: "later"])
def test_a_lock_busy_of_the_body_is_not_ours_to_answer(on_busy: Any) -> None:
    @zk_locked("order:<number>", on_busy=on_busy)
    def pay(number: int) -> None:
        raise LockBusy("the till", key="till")

    with pytest.raises(LockBusy, match="the till"):
        pay(1)
    assert not zk_lock("order:1").held
