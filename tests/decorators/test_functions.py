"""``@zk_locked`` on functions and methods: what is locked, and that the face stays the same.

The signature is kept, or Celery's argument check would be off.
"""

# ruff: noqa: ARG001 - the views and functions here are called for their locks

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction

from distlock import zk_lock, zk_locked
from tests.kit.helpers import eventually
from tests.testproject.elsewhere import in_line

pytestmark = pytest.mark.usefixtures("distlock_settings")


def holds(key: str) -> bool:
    return zk_lock(key).held


class Shop:
    """One branch of the shop."""

    chain = "corner"

    def __init__(self, name: str) -> None:
        self.name = name

    @zk_locked("stock:<self.name>:<sku>")
    def deduct(self, sku: str, *, amount: int = 1) -> bool:
        """Take `amount` of `sku`."""
        return holds(f"stock:{self.name}:{sku}")

    @zk_locked("stock:<self.name>:<sku>")
    async def adeduct(self, sku: str) -> bool:
        return holds(f"stock:{self.name}:{sku}")

    @staticmethod
    @zk_locked("stock:<sku>")
    def static(sku: str) -> bool:
        return holds(f"stock:{sku}")

    @classmethod
    @zk_locked("stock:<cls.chain>:<sku>")
    def of_class(cls, sku: str) -> bool:
        return holds(f"stock:{cls.chain}:{sku}")


def test_a_function_holds_the_lock_that_its_template_names_and_releases_it() -> None:
    @zk_locked("stock:<sku>")
    def deduct(sku: str) -> tuple[bool, bool]:
        return holds(f"stock:{sku}"), holds("stock:other")

    assert deduct("42") == (True, False)
    assert not holds("stock:42")
    assert in_line("stock:42") == 0


def test_two_instances_have_two_locks() -> None:
    south = Shop("south")

    class Nested(Shop):
        @zk_locked("stock:<self.name>:<sku>")
        def both(self, sku: str) -> tuple[bool, bool]:
            return holds(f"stock:south:{sku}"), south.deduct(sku)

    assert Nested("north").both("42") == (False, True)


class LockAbove:
    """The lock is above the builtin; in `Shop` it is below."""

    chain = "corner"

    @zk_locked("stock:<sku>")
    @staticmethod
    def static(sku: str) -> bool:
        return holds(f"stock:{sku}")

    @zk_locked("stock:<cls.chain>:<sku>")
    @classmethod
    def of_class(cls, sku: str) -> bool:
        return holds(f"stock:{cls.chain}:{sku}")

    @zk_locked("stock:<sku>")
    @staticmethod
    async def astatic(sku: str) -> bool:
        return holds(f"stock:{sku}")

    @zk_locked("stock:<cls.chain>:<sku>")
    @classmethod
    async def aof_class(cls, sku: str) -> bool:
        return holds(f"stock:{cls.chain}:{sku}")


@pytest.mark.parametrize("owner", [Shop, Shop("north"), LockAbove, LockAbove()])
def test_static_and_class_methods_are_decorated_above_the_builtin_and_below(owner: Any) -> None:
    assert owner.static("42")
    assert owner.static(sku="42")
    assert owner.of_class("42")
    assert owner.of_class(sku="42")


@pytest.mark.parametrize("owner", [LockAbove, LockAbove()])
def test_async_static_and_class_methods_are_decorated_above_the_builtin(owner: Any) -> None:
    assert asyncio.run(owner.astatic("42"))
    assert asyncio.run(owner.aof_class("42"))


def test_a_class_method_knows_the_subclass() -> None:
    class Branch(LockAbove):
        chain = "branch"

    assert Branch.of_class("42")
    assert Branch().of_class("42")


def test_an_async_function_holds_the_lock_while_it_awaits() -> None:
    @zk_locked("stock:<sku>")
    async def deduct(sku: str) -> tuple[bool, bool]:
        before = holds(f"stock:{sku}")
        await asyncio.sleep(0)
        return before, holds(f"stock:{sku}")

    assert asyncio.run(deduct("42")) == (True, True)
    assert in_line("stock:42") == 0


def test_an_exception_comes_through_and_leaves_no_node() -> None:
    @zk_locked("stock:<sku>")
    def deduct(sku: str) -> None:
        raise ZeroDivisionError(sku)

    with pytest.raises(ZeroDivisionError, match="42"):
        deduct("42")
    assert in_line("stock:42") == 0


def test_the_function_keeps_its_name_text_and_signature() -> None:
    def deduct(sku: str, /, amount: int = 1, *, strict: bool = False) -> int:
        """Take some."""
        return amount

    locked = zk_locked("stock:<sku>")(deduct)
    assert locked.__name__ == "deduct"
    assert locked.__qualname__ == deduct.__qualname__
    assert locked.__module__ == __name__
    assert locked.__doc__ == "Take some."
    assert inspect.signature(locked) == inspect.signature(deduct)
    assert locked.__wrapped__ is deduct  # type: ignore[attr-defined]


def test_async_stays_async_and_sync_stays_sync() -> None:
    assert iscoroutinefunction(Shop.adeduct)
    assert not iscoroutinefunction(Shop.deduct)


def test_wrong_arguments_raise_the_type_error_of_the_call_and_lock_nothing() -> None:
    @zk_locked("stock:<sku>")
    def deduct(sku: str) -> None: ...

    with pytest.raises(TypeError, match="sku"):
        deduct()  # type: ignore[call-arg]
    assert in_line("stock:42") == 0


# --- one function called by many -----------------------------------------------------------------
# A decorator object that keeps the state of a call is shared by threads, and the winner never
# releases. Two locks on one path in one thread are one lock. Two tasks of one thread are two
# owners.


# ruff: noqa: ARG001 - the views and functions here are called for their locks


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
