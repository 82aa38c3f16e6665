"""``OLD_KEYS``: processes of two releases exclude each other, though they write different keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from distlock import LockBusy, zk_lock, zk_locked
from distlock.checks import check_templates
from distlock.decorators import declared
from tests.kit.tools import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django import Settings

#: What an older release, and this one, make of ``order:<shop>:<number>`` for ("a:b", "1").
OLD, NEW = "order:a:b:1", "order:a%3Ab:1"


@pytest.fixture
def _old_keys(distlock_settings: Settings) -> None:
    distlock_settings.DISTLOCK["default"]["OLD_KEYS"] = True


@pytest.fixture
def somebody() -> Iterator[Owner]:
    with Owner() as owner:
        yield owner


def make_order(**options: Any) -> Callable[[str, str], list[str]]:
    """A locked function as it is with the settings of this moment; it returns what it holds."""

    @zk_locked("order:<shop>:<number>", timeout=0, **options)
    def order(shop: str, number: str) -> list[str]:  # noqa: ARG001
        return [key for key in (OLD, NEW) if zk_lock(key).held]

    return order


@pytest.mark.usefixtures("distlock_settings")
def test_without_the_setting_the_new_key_is_taken() -> None:
    assert make_order()("a:b", "1") == [NEW]


@pytest.mark.usefixtures("_old_keys")
def test_with_the_setting_both_keys_are_taken() -> None:
    assert make_order()("a:b", "1") == [OLD, NEW]


@pytest.mark.usefixtures("_old_keys")
def test_an_async_function_takes_both_keys() -> None:
    @zk_locked("order:<shop>:<number>")
    async def order(shop: str, number: str) -> list[str]:  # noqa: ARG001
        return [key for key in (OLD, NEW) if zk_lock(key).held]

    assert asyncio.run(order("a:b", "1")) == [OLD, NEW]


@pytest.mark.usefixtures("_old_keys")
@pytest.mark.parametrize("key", [OLD, NEW])
def test_old_and_new_processes_exclude_it(key: str, somebody: Owner) -> None:
    somebody.now(zk_lock(key).acquire)
    with pytest.raises(LockBusy):
        make_order()("a:b", "1")
    assert make_order(on_busy="skip")("a:b", "1") is None
    somebody.now(zk_lock(key).release)
    assert make_order(on_busy="skip")("a:b", "1") == [OLD, NEW]


@pytest.mark.usefixtures("_old_keys")
def test_a_dict_has_its_old_text_in_the_old_key() -> None:
    @zk_locked("report:<query>")
    def report(query: dict[str, int]) -> list[bool]:  # noqa: ARG001
        return [zk_lock(f"report:{{'{a}': 1, '{b}': 1}}").held for a, b in ("ab", "ba")]

    assert report({"b": 1, "a": 1}) == [True, True]


@pytest.mark.usefixtures("_old_keys")
def test_a_wrong_template_is_reported_once() -> None:
    before = set(declared)

    @zk_locked("order:<shop>:<number>")
    def order(shop: str) -> None:
        """Has no number."""

    mine = [message for message in check_templates() if "test_a_wrong_template" in message.msg]
    assert len(mine) == 1
    assert len(set(declared) - before) == 1
