"""The sync and the async calls of one task are those of one owner, whichever takes the lock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from pytest_django import Settings

from distlock import (
    NotOwner,
    zk_leader,
    zk_lease,
    zk_lock,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from tests.kit.tools import Tree

pytestmark = pytest.mark.engines("zookeeper", "redis")

KEY = "key"

REENTRANT: dict[str, Callable[[], Any]] = {
    "mutex": lambda: zk_lock(KEY, timeout=0),
    "unfair mutex": lambda: zk_lock(KEY, timeout=0, fair=False),
    "reader": lambda: zk_rwlock(KEY, timeout=0).read,
    "writer": lambda: zk_rwlock(KEY, timeout=0).write,
    "multi-lock": lambda: zk_multilock(KEY, "another", timeout=0),
    "leader": lambda: zk_leader(KEY, timeout=0),
}
UNOWNED: dict[str, Callable[[], Any]] = {
    "semaphore": lambda: zk_semaphore(KEY, 1, timeout=0),
    "semaphore mutex": lambda: zk_semaphore_mutex(KEY, timeout=0),
}
reentrant = pytest.mark.parametrize("make", REENTRANT.values(), ids=REENTRANT)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


@reentrant
def test_an_async_block_enters_what_the_task_took_by_the_sync_call(
    tree: Tree, make: Callable[[], Any]
) -> None:
    async def main() -> None:
        lock = make()
        assert lock.acquire()
        async with make():
            line = tree.line(KEY)
        assert tree.line(KEY) == line
        lock.release()
        with pytest.raises(NotOwner):
            lock.release()

    run(main())


@reentrant
def test_a_sync_block_enters_what_the_task_took_by_the_async_call(
    tree: Tree, make: Callable[[], Any]
) -> None:
    async def main() -> None:
        lock = make()
        assert await lock.aacquire()
        with make():
            line = tree.line(KEY)
        assert tree.line(KEY) == line
        await lock.arelease()
        with pytest.raises(NotOwner):
            await lock.arelease()

    run(main())


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("recipe", [name for name in REENTRANT if name != "reader"])
def test_the_thread_is_another_owner_than_the_task_it_runs(recipe: str) -> None:
    make = REENTRANT[recipe]

    async def main() -> bool:
        taken: bool = await make().aacquire(timeout=0)
        return taken

    with make():
        assert asyncio.run(main()) is False


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("make", UNOWNED.values(), ids=UNOWNED)
def test_what_has_no_owner_is_busy_for_either_call_and_released_by_both(
    make: Callable[[], Any],
) -> None:
    async def main() -> None:
        lock = make()
        assert lock.acquire()
        assert await lock.aacquire(timeout=0) is False
        await lock.arelease()
        assert await lock.aacquire(timeout=5)
        assert lock.acquire(timeout=0) is False
        lock.release()

    run(main())


@pytest.mark.usefixtures("tree")
def test_a_lease_is_renewed_by_either_call_and_ended_by_one() -> None:
    async def main() -> None:
        lease = zk_lease(KEY, 600, owner="me", timeout=5)
        assert lease.acquire()
        async with lease as hold:
            assert (await lease.arenew()).token == hold.token
        assert lease.locked() is False
        assert await lease.aacquire()
        with lease:
            lease.renew()
        with pytest.raises(NotOwner):
            await lease.arelease()

    run(main())


@pytest.mark.usefixtures("tree")
def test_a_generator_that_its_task_closes_gives_its_lock_back() -> None:
    """As docs/how-to/async.md has it."""

    async def lines() -> AsyncGenerator[str, None]:
        async with zk_lock(KEY):
            yield "first"
            yield "second"

    async def main() -> None:
        async with aclosing(lines()) as generator:
            async for _ in generator:
                assert zk_lock(KEY).held
                break
        assert not zk_lock(KEY).held

    run(main())


def test_a_developer_is_warned_of_a_sync_block_that_stops_the_loop(
    tree: Tree,  # noqa: ARG001 - the settings
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def block() -> None:
        with zk_lock(KEY):
            pass

    async def main() -> None:
        block()  # without DEBUG nobody is: here warnings are errors
        settings.DEBUG = True
        await sync_to_async(block)()
        async with zk_lock(KEY):
            block()  # it need not wait
        with pytest.warns(
            RuntimeWarning, match=r"with zk_lock\('key'.*stops the event loop"
        ) as told:
            block()
        assert told[0].filename == __file__
        monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        block()

    run(main())
