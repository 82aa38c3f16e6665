"""``on_unavailable="proceed"``: a block without the lock, which says so, and no other error's."""

# ruff: noqa: ARG001 - keys are for the locks

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from distlock import (
    Hold,
    LockBusy,
    LockLost,
    LockUnavailable,
    lock_bypassed,
    zk_limited,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
)
from distlock.contrib.prometheus import Metrics
from distlock.fencing import token_of
from distlock.locks.held_permits import of_blocks
from distlock.owner.owner import current
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import await_connection, expire

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from distlock_chaos.proxy import TcpProxy
    from distlock_chaos.server import ZooKeeper

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

PROCEED: dict[str, Any] = {"on_unavailable": "proceed", "timeout": 5}
RECIPES: dict[str, Callable[[], Any]] = {
    "mutex": lambda: zk_lock("key", **PROCEED),
    "read": lambda: zk_rwlock("key", **PROCEED).read,
    "write": lambda: zk_rwlock("key", **PROCEED).write,
    "semaphore": lambda: zk_semaphore("key", 3, **PROCEED),
}


@pytest.fixture
def down(broken_link: TcpProxy) -> TcpProxy:
    """The link is cut, and the process knows."""
    session = await_connection()
    broken_link.cut()
    eventually(lambda: not session.connected)
    return broken_link


def assert_none(hold: Hold) -> None:
    """It says that it is no lock, whatever is asked of it."""
    assert hold.without_lock
    assert (hold.lost, hold.lost_reason, hold.valid_for()) == (True, "unavailable", 0.0)
    asked: list[Callable[[], object]] = [
        hold.check,
        hold.verify,
        lambda: hold.token,
        lambda: token_of(hold),
    ]
    for question in asked:
        with pytest.raises(LockUnavailable, match=r"without the lock 'key'.*hold\.without_lock"):
            question()


@pytest.mark.usefixtures("down")
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_block_goes_on_and_is_known_to_have_no_lock(
    recipe: str, caplog: pytest.LogCaptureFixture
) -> None:
    lock, ends = RECIPES[recipe](), []
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.connect()

    async def in_task() -> None:
        async with lock as hold:
            assert_none(hold)
            ends.append("async with")
        async with lock.attempt() as hold:
            assert_none(hold)
            ends.append("async attempt")

    with lock as hold:
        assert_none(hold)
        ends.append("with")
    with lock.attempt() as hold:
        assert_none(hold)
        ends.append("attempt")
    asyncio.run(in_task())
    metrics.disconnect()
    assert ends == ["with", "attempt", "async with", "async attempt"]
    name = {"semaphore": "Semaphore"}.get(recipe, "Mutex")
    labels = {"template": "", "using": "default", "recipe": name}
    assert registry.get_sample_value("distlock_bypassed_total", labels) == 4
    assert registry.get_sample_value("distlock_held", labels) is None
    said = [one for one in caplog.records if getattr(one, "outcome", "") == "bypassed"]
    assert len(said) == 4
    assert "'key' goes on without it" in said[0].getMessage()


@pytest.mark.usefixtures("down")
def test_a_call_goes_on() -> None:
    errors = []

    def note(*, template: str, error: Exception, **_: Any) -> None:
        errors.append((template, type(error)))

    @zk_locked("stock:<sku>", on_unavailable="proceed")
    @zk_limited("shop:<sku>", 1, on_unavailable="proceed")
    def buy(sku: int) -> str:
        return "bought"

    @zk_locked("stock:<sku>", on_unavailable="proceed")
    async def abuy(sku: int) -> str:
        return "bought"

    lock_bypassed.connect(note)
    assert buy(7) == asyncio.run(abuy(7)) == "bought"
    assert errors == [
        (template, LockUnavailable) for template in ("stock:<sku>", "shop:<sku>", "stock:<sku>")
    ]


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_inner_block_has_the_lock_when_the_server_is_back(recipe: str, down: TcpProxy) -> None:
    lock = RECIPES[recipe]()
    with lock as outer:
        down.pass_through()
        await_connection()
        with RECIPES[recipe]() as inner:
            inner.check()
            assert lock.held
        assert not lock.held
        with lock as same:
            same.check()
        assert lock.held  # the outer block of the same object releases it
    assert not lock.held
    assert (outer.without_lock, inner.without_lock) == (True, False)


@pytest.mark.parametrize("recipe", ["mutex", "semaphore"])
def test_a_generators_block_that_ends_inside_another_one_takes_nothing_from_it(
    recipe: str, down: TcpProxy
) -> None:
    def stream() -> Generator[bool]:
        with RECIPES[recipe]() as hold:
            yield hold.without_lock

    streaming = stream()
    assert next(streaming)
    down.pass_through()
    await_connection()
    with RECIPES[recipe]() as hold:
        streaming.close()
        assert not hold.lost
        hold.check()
        assert [*current().held, *of_blocks(current())]
    assert not [*current().held, *of_blocks(current())]


def test_an_inner_block_without_a_permit_ends_no_other(broken_link: TcpProxy) -> None:
    semaphore = RECIPES["semaphore"]()
    with semaphore as outer:
        broken_link.cut()
        eventually(lambda: outer.at_risk)
        with semaphore as inner:
            assert inner.without_lock
        assert semaphore.held == 1
        assert not outer.released
        broken_link.pass_through()
        eventually(lambda: not outer.at_risk)


@pytest.mark.usefixtures("holder")
def test_a_busy_lock_is_not_away() -> None:
    with pytest.raises(LockBusy), zk_lock("key", on_unavailable="proceed", timeout=0):
        pass


def test_a_lost_lock_is_not_away(zookeeper: ZooKeeper) -> None:
    block = ExitStack()
    hold = block.enter_context(zk_lock("key", on_unavailable="proceed"))
    expire(zookeeper.hosts, session_for())
    eventually(lambda: hold.lost)
    with pytest.raises(LockLost):
        block.close()


def test_it_is_refused_where_it_would_promise_too_much() -> None:
    with pytest.raises(ValueError, match="begin the transaction inside"):
        zk_lock("key", on_unavailable="proceed", until="commit")
    with pytest.raises(ValueError, match="begin the transaction inside"):
        zk_lock("key", on_unavailable="proceed", atomic=True)
    with pytest.raises(ValueError, match="held all or none"):
        zk_multilock(zk_lock("key", on_unavailable="proceed"))
    with pytest.raises(ValueError, match="order of arrival"):
        zk_locked("key", on_unavailable="proceed", on_busy="queue")
    with pytest.raises(ValueError, match='"raise" or "proceed"'):
        zk_lock("key", on_unavailable="ignore")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is for a block"):
        zk_lock("key", on_unavailable="proceed").acquire()
