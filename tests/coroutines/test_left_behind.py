"""A task that ends with a lock held: nobody can release that any more, so the log says so.

It stays held. Whoever awaited the task may go on as if it held the lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest
from asgiref.sync import sync_to_async

from distlock import LockBusy, zk_lock
from distlock.session.registry import close_sessions
from tests.kit.helpers import logged
from tests.kit.tools import Tree

KEY = "key"
SAID = "has ended and left the lock 'key' held"


@pytest.fixture(autouse=True)
def _what_is_left_ends_with_the_session(tree: Tree) -> Iterator[Tree]:
    yield tree  # which looks afterwards whether all is gone
    close_sessions()


async def one_of_its_own() -> None:
    assert await zk_lock(KEY).aacquire()


def test_it_is_said_and_nobody_else_gets_the_lock(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        await asyncio.create_task(one_of_its_own(), name="import-7")
        assert not zk_lock(KEY).held
        with pytest.raises(LockBusy):
            await zk_lock(KEY, timeout=0).__aenter__()

    asyncio.run(main())
    assert f"The task import-7 {SAID}" in caplog.text
    tree.await_line(KEY, 1)  # without that of the refused one


def test_it_is_said_of_a_generator_that_was_not_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def lines() -> AsyncGenerator[str, None]:
        async with zk_lock(KEY):
            yield "first"
            yield "second"

    async def main() -> None:
        async for _ in lines():
            break

    asyncio.run(main())
    assert "A block of zk_lock('key', using='default') ended and released nothing." in caplog.text
    assert "'key' is not held here." in caplog.text
    assert SAID in caplog.text


def test_nothing_is_said_of_one_that_has_released(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with zk_lock(KEY):
            await asyncio.sleep(0)
        lock = zk_lock(KEY)
        assert await lock.aacquire()
        await lock.arelease()

    asyncio.run(main())
    assert not logged(caplog)


def test_nothing_is_said_of_a_lock_that_a_thread_goes_on_to_hold(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As a sync view does under ASGI whose client has gone."""
    holds, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def view() -> None:
        with zk_lock(KEY):
            holds.set()
            assert may_end.wait(60)
        ended.set()

    async def main() -> None:
        task = asyncio.create_task(sync_to_async(view, thread_sensitive=False)())
        assert await asyncio.to_thread(holds.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)  # the task's callbacks come after it
        may_end.set()
        assert await asyncio.to_thread(ended.wait, 60)

    asyncio.run(main())
    assert not logged(caplog)
