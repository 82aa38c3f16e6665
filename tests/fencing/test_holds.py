"""The tokens of real holds, from a real ZooKeeper: they rise, and a former holder is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from kazoo.exceptions import NoNodeError
from pytest_django import Settings

from distlock import LockLost, StaleToken, zk_lock
from distlock.session.registry import close_sessions
from distlock_chaos.server import ZooKeeper
from tests.fencing.models import Stock
from tests.kit.engines import tree_at
from tests.kit.helpers import eventually
from tests.kit.tools import Tree, await_connection, expire

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture(autouse=True)
def _other_session(distlock_settings: Settings) -> Iterator[None]:
    """Beside "default" an alias "other" with the same tree: as a client in another process."""
    default = distlock_settings.DISTLOCK["default"]
    distlock_settings.DISTLOCK = {"default": default, "other": default}
    yield
    close_sessions()


@pytest.fixture
def tree(distlock_settings: Settings) -> Iterator[Tree]:
    default = distlock_settings.DISTLOCK["default"]
    with tree_at(default["HOSTS"], default["NAMESPACE"]) as tree:
        yield tree


def token_of_a_holder(using: str = "default") -> int:
    with zk_lock("stock:lamp", using=using) as hold:
        return hold.token


def test_tokens_rise_although_the_parent_was_removed(tree: Tree) -> None:
    before = token_of_a_holder()
    path = tree.path("stock:lamp")
    eventually(lambda: not tree.line("stock:lamp"))
    with suppress(NoNodeError):  # the server has done so already
        tree.client.delete(path)
    with zk_lock("stock:lamp") as hold:
        assert tree.line("stock:lamp")[0].endswith("0000000000")  # the sequence began anew
        assert hold.token > before


def test_the_former_of_two_real_holders_is_refused(zookeeper: ZooKeeper, stock: Stock) -> None:
    """The session of the first expires while it holds: the second is its rightful successor."""
    with suppress(LockLost), zk_lock("stock:lamp") as former:  # it may not know yet
        expire(zookeeper.hosts, await_connection())
        with zk_lock("stock:lamp", using="other") as successor:
            Stock.objects.fenced(successor).claim(sku="lamp")
            with pytest.raises(StaleToken) as refused:
                stock.save(fence=former)
    assert (refused.value.token, refused.value.newer) == (former.token, successor.token)


def test_a_hold_that_was_released_can_write_until_a_newer_one_has(stock: Stock) -> None:
    """The fence knows of writes, not of locks."""
    with zk_lock("stock:lamp") as hold:
        pass
    stock.save(fence=hold)
    with zk_lock("stock:lamp") as newer:
        stock.save(fence=newer)
    with pytest.raises(StaleToken):
        stock.save(fence=hold)


@pytest.mark.parametrize("fence", ["5", True, 5.0, b"5", {"token": 5}, [5]], ids=repr)
def test_what_is_no_token_is_refused(stock: Stock, fence: Any) -> None:
    stock.quantity = 1
    with pytest.raises(TypeError, match="Hold or its token"):
        stock.save(fence=fence)
    with pytest.raises(TypeError, match="Hold or its token"):
        Stock.objects.fenced(fence)
    stock.refresh_from_db()
    assert (stock.quantity, stock.fence) == (10, 5)


def test_a_query_set_takes_no_none_for_a_token() -> None:
    none: Any = None
    with pytest.raises(TypeError, match="Hold or its token"):
        Stock.objects.fenced(none)


@pytest.mark.parametrize("vendor", ["sqlite"], indirect=True)
def test_asave_is_fenced_too(stock: Stock) -> None:
    async def write() -> None:
        stock.quantity = 9
        await stock.asave(fence=6)
        with pytest.raises(StaleToken):
            await stock.asave(fence=4)

    # In this thread: the one that asyncio.run() leaves to others may know another database.
    async_to_sync(write)()
    stock.refresh_from_db()
    assert (stock.quantity, stock.fence) == (9, 6)
