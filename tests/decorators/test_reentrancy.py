"""One decorated function called by many: nested, by threads, by tasks.

A decorator object that keeps the state of a call is shared by threads, and the winner never
releases. Two locks on one path in one thread are one lock. Two tasks of one thread are two owners.
"""

# ruff: noqa: ARG001 - the views and functions here are called for their locks

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from distlock import zk_lock, zk_locked
from tests.kit.helpers import eventually
from tests.testproject.elsewhere import in_line

pytestmark = pytest.mark.usefixtures("distlock_settings")


def test_a_nested_call_on_the_same_key_enters_again() -> None:
    @zk_locked("stock:<sku>", timeout=0)
    def inner(sku: str) -> int:
        return in_line(f"stock:{sku}")

    @zk_locked("<kind>:<sku>", timeout=0)
    def outer(kind: str, sku: str) -> tuple[int, bool]:
        return inner(sku), zk_lock(f"stock:{sku}").held

    assert outer("stock", "42") == (1, True)
    assert in_line("stock:42") == 0


def test_the_first_to_leave_releases_its_own_lock_and_not_that_of_another_call() -> None:
    inside = {sku: Event() for sku in ("1", "2")}
    leave = {sku: Event() for sku in ("1", "2")}

    @zk_locked("stock:<sku>")
    def deduct(sku: str) -> None:
        inside[sku].set()
        assert leave[sku].wait(10)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(deduct, "1")
        assert inside["1"].wait(10)
        second = pool.submit(deduct, "2")
        assert inside["2"].wait(10)
        leave["1"].set()
        first.result(10)
        eventually(lambda: in_line("stock:1") == 0)
        assert in_line("stock:2") == 1
        leave["2"].set()
        second.result(10)
    eventually(lambda: in_line("stock:2") == 0)
