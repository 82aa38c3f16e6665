"""``cancel_on_loss=True``: the body of ``async with`` is cancelled when the lock is lost (C25).

Asked for at CURATOR-465, where an interrupted holder could not be told from a cancelled one. The
care about cancellations from outside is that of ``asyncio.timeout``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View

from distlock import (
    Hold,
    LockLost,
    zk_leader,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.locks import cancellation
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.tools import PATIENCE, expire, forgets_all

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

KEY = "key"
LIMIT = 0.2
COUNTS = sys.version_info >= (3, 11)

RECIPES: dict[str, Callable[..., Any]] = {
    "mutex": lambda **options: zk_lock(KEY, **options),
    "unfair": lambda **options: zk_lock(KEY, fair=False, **options),
    "batch": lambda **options: zk_lock(KEY, handoff=2, **options),
    "reader": lambda **options: zk_rwlock(KEY, **options).read,
    "writer": lambda **options: zk_rwlock(KEY, **options).write,
    "semaphore": lambda **options: zk_semaphore(KEY, 2, **options),
    "semaphore mutex": lambda **options: zk_semaphore_mutex(KEY, **options),
    "multi-lock": lambda **options: zk_multilock(KEY, **options),
    "multi-lock of one": lambda **options: zk_multilock(zk_lock(KEY, **options), "another"),
    "leader": lambda **options: zk_leader(KEY, **options),
}


def cancelling() -> int:
    """How often the current task was asked to end, and has not taken that back."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling() if sys.version_info >= (3, 11) else 0


def lose(hold: Hold) -> None:
    """As when the heartbeat's thread has found out that an operator has broken the lock."""
    hold._grant.lose()
    hold._grant.report()


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_body_is_cancelled_and_the_block_raises(recipe: str) -> None:
    async def main() -> None:
        lock = RECIPES[recipe](max_hold=LIMIT, cancel_on_loss=True)
        for _ in range(2):
            with pytest.raises(LockLost) as raised:
                async with lock as given:
                    await asyncio.sleep(PATIENCE)
            assert raised.value.hold in (given if isinstance(given, tuple) else (given,))
            assert raised.value.reason == "max_hold"
            assert isinstance(raised.value.__cause__, asyncio.CancelledError)
            assert cancelling() == 0
            await asyncio.sleep(0)
        assert not cancellation._blocks

    asyncio.run(main())
    forgets_all(session_for())


def test_a_session_that_ends_cancels_nested_blocks_and_one_raises(
    zookeeper: ZooKeeper,
) -> None:
    reached: list[str] = []

    async def main() -> None:
        with pytest.raises(LockLost) as raised:  # noqa: PT012
            async with zk_lock("outer", cancel_on_loss=True) as outer:
                try:
                    async with zk_lock("inner", cancel_on_loss=True) as inner:
                        await asyncio.to_thread(expire, zookeeper.hosts, session_for())
                        await asyncio.sleep(PATIENCE)
                except BaseException as error:
                    reached.append(type(error).__name__)
                    raise
        # The outer one, unless the inner block has ended before the other loss was reported.
        by = {"CancelledError": outer, "LockLost": inner}[reached[0]]
        assert raised.value.hold is by or not COUNTS
        assert raised.value.reason == "session"
        assert cancelling() == 0

    asyncio.run(main())
    assert len(reached) == 1


def test_a_block_that_loses_nothing_leaves_others_cancellation_alone() -> None:
    async def main() -> None:
        with pytest.raises(LockLost) as raised:  # noqa: PT012
            async with zk_lock("outer", cancel_on_loss=True, max_hold=LIMIT) as outer:
                with pytest.raises(asyncio.CancelledError) as cancelled:
                    async with zk_lock("inner", cancel_on_loss=True):
                        await asyncio.sleep(PATIENCE)
                raise cancelled.value
        assert raised.value.hold is outer

    asyncio.run(main())


# Python 3.10 merges the two when the loss comes first.
@pytest.mark.parametrize("order", ["outside first", *(["loss first"] if COUNTS else [])])
def test_a_cancellation_from_outside_at_the_same_time_wins(order: str) -> None:
    async def main() -> None:
        inside: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()

        async def body() -> None:
            async with zk_lock(KEY, cancel_on_loss=True) as hold:
                inside.set_result(hold)
                await asyncio.sleep(PATIENCE)

        task = asyncio.ensure_future(body())
        held = await inside
        if order == "outside first":
            task.cancel()
        lose(held)
        if order == "loss first":
            await asyncio.sleep(0)  # our own cancel() is called in this turn of the loop
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())
    assert not zk_lock(KEY).locked()


def test_a_cancellation_from_outside_while_the_body_cleans_up_wins() -> None:
    async def main() -> None:
        cleaning = asyncio.Event()

        async def body() -> None:
            async with zk_lock(KEY, cancel_on_loss=True) as hold:
                lose(hold)
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    cleaning.set()
                    await asyncio.sleep(PATIENCE)

        task = asyncio.ensure_future(body())
        await asyncio.wait_for(cleaning.wait(), PATIENCE)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("depth", [1, 2])
def test_a_body_that_swallows_the_cancellation_gets_the_loss_at_its_end(depth: int) -> None:
    async def main() -> None:
        outer = zk_lock(KEY)
        assert depth == 1 or await outer.aacquire()
        with pytest.raises(LockLost) as raised:  # noqa: PT012
            async with zk_lock(KEY, cancel_on_loss=True) as hold:
                lose(hold)
                try:
                    await asyncio.sleep(PATIENCE)
                except asyncio.CancelledError:
                    await asyncio.sleep(0)
        assert raised.value.hold is hold
        assert cancelling() == 0
        if depth == 2:
            with pytest.raises(LockLost):
                await outer.arelease()

    asyncio.run(main())


def test_the_bodys_own_exception_is_worth_more() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with zk_lock(KEY, cancel_on_loss=True) as hold:
                lose(hold)
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    1 / 0  # noqa: B018
        assert cancelling() == 0

    asyncio.run(main())


def test_a_loss_at_the_end_of_the_block_cancels_nothing_after_it() -> None:
    async def main() -> None:
        with pytest.raises(LockLost):
            async with zk_lock(KEY, cancel_on_loss=True) as hold:
                lose(hold)  # the loop has no turn before the end of the block
        await asyncio.sleep(0.01)
        assert cancelling() == 0

    asyncio.run(main())


# --- where there is nothing to cancel ------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_synchronous_code_is_told_what_to_do(recipe: str) -> None:
    lock = RECIPES[recipe](cancel_on_loss=True)
    with pytest.raises(TypeError, match="synchronous code cannot be interrupted"), lock:
        raise AssertionError
    with pytest.raises(TypeError, match=r"call hold\.check\(\) before each step that counts"):
        lock.acquire()
    with pytest.raises(TypeError, match="`async with`"):
        asyncio.run(lock.aacquire())


def test_a_synchronous_function_is_refused_when_it_is_called() -> None:
    @zk_locked("<name>", cancel_on_loss=True)
    def work(name: str) -> None:
        raise AssertionError(name)

    with pytest.raises(TypeError, match="synchronous code cannot be interrupted"):
        work("a")


def test_the_dispatch_of_an_async_class_view_is_cancelled() -> None:
    @method_decorator(zk_locked("<name>", cancel_on_loss=True, max_hold=LIMIT), name="dispatch")
    class Report(View):
        async def get(self, request: HttpRequest, name: str) -> HttpResponse:
            await asyncio.sleep(PATIENCE)
            return HttpResponse()

    request = HttpRequest()
    request.method = "GET"

    async def main() -> None:
        await Report.as_view()(request, name=KEY)  # type: ignore[misc]

    with pytest.raises(LockLost):
        asyncio.run(main())
