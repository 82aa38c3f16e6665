"""What ``@zk_locked`` refuses: at decoration where it can be seen there, else at the call.

Bad input: None and empty values, malformed templates, impossible timeouts.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from distlock import LockKeyError, LockUnavailable, zk_locked
from distlock_chaos.ports import free_ports


def test_a_class_is_refused_and_the_message_shows_dispatch() -> None:
    with pytest.raises(TypeError, match=r"method_decorator.*dispatch"):

        @zk_locked("stock")
        class Shop:
            pass


def test_a_generator_is_refused_as_its_body_runs_after_the_call() -> None:
    with pytest.raises(TypeError, match=r"generator.*rows.*with zk_lock"):

        @zk_locked("stock")
        def rows() -> Iterator[int]:
            yield 1


def test_an_async_generator_is_refused() -> None:
    with pytest.raises(TypeError, match=r"generator.*rows.*async with zk_lock"):

        @zk_locked("stock")
        async def rows() -> AsyncIterator[int]:
            yield 1


@pytest.mark.parametrize("database", [True, "default"])
def test_an_async_function_cannot_be_atomic(database: Any) -> None:
    with pytest.raises(TypeError, match=r"atomic=.*deduct.*sync_to_async"):

        @zk_locked("stock", atomic=database)
        async def deduct() -> None: ...


def test_a_template_that_names_no_argument_is_refused_at_decoration() -> None:
    with pytest.raises(LockKeyError) as caught:

        @zk_locked("stock:<skew>:<user.pk>:<sku>")
        def buy(request: object, sku: str) -> None: ...

    said = str(caught.value)
    assert "refused_at_decoration.<locals>.buy names 'skew', 'user'" in said
    assert said.endswith("It has: request, sku.")


def test_a_template_fits_any_argument_of_a_view_that_takes_all() -> None:
    @zk_locked("<anything>")
    def view(**captured: str) -> str:
        return captured["anything"]

    assert "anything" not in inspect.signature(view).parameters


def test_without_parentheses_it_says_what_to_write() -> None:
    def buy(request: object, sku: str) -> None: ...

    with pytest.raises(LockKeyError, match=r"write @zk_locked\('stock:<sku>'\)"):
        zk_locked(buy)  # type: ignore[arg-type]


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="decorates a function"):
        zk_locked("stock")(42)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [-1, float("nan"), -timedelta(seconds=1)])
def test_an_impossible_timeout_is_refused_at_decoration(timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout"):
        zk_locked("stock", timeout=timeout)


@pytest.mark.parametrize("timeout", ["2", True, object()])
def test_a_timeout_that_is_no_number_is_refused_at_decoration(timeout: Any) -> None:
    with pytest.raises(TypeError, match="timeout"):
        zk_locked("stock", timeout=timeout)


@pytest.mark.parametrize(
    "sku", [None, "", "   ", "\t\n", str], ids=["none", "empty", "blank", "tab", "callable"]
)
def test_a_value_that_names_nothing_is_refused_at_the_call(sku: Any) -> None:
    ran = []

    @zk_locked("stock:<sku>")
    def deduct(sku: Any) -> None:
        ran.append(sku)

    with pytest.raises(LockKeyError, match="stock:<sku>"):
        deduct(sku)
    assert not ran


def test_an_async_function_refuses_a_value_that_names_nothing() -> None:
    @zk_locked("stock:<sku>")
    async def deduct(sku: Any) -> None: ...

    with pytest.raises(LockKeyError, match="stock:<sku>"):
        asyncio.run(deduct(None))


@pytest.mark.parametrize("on_busy", ["skip", lambda *_: "later"])
def test_no_policy_hides_that_the_server_is_away(settings: Settings, on_busy: Any) -> None:
    (port,) = free_ports(1)
    settings.DISTLOCK = {"default": {"HOSTS": f"127.0.0.1:{port}", "CONNECT_TIMEOUT": 0.3}}

    @zk_locked("stock", timeout=0.5, on_busy=on_busy)
    def deduct() -> None: ...

    with pytest.raises(LockUnavailable):
        deduct()
