"""The owner in async code is the task, and never a sibling or a child.

Two coroutines share a thread; context variables are copied to child tasks.
"""

from __future__ import annotations

import asyncio
import gc

from distlock.owner import owner as module
from distlock.owner.owner import Owner, current
from tests.owner.calls import owner, run


def test_a_task_is_another_owner_than_the_thread_it_runs_in() -> None:
    mine = current()

    async def main() -> None:
        assert current() is not mine

    run(main)
    assert current() is mine


def test_a_child_that_outlives_its_parent_is_another_owner() -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def child() -> Owner:
            await go_on.wait()
            return current()

        async def parent() -> tuple[Owner, asyncio.Task[Owner]]:
            return current(), asyncio.create_task(child())

        first, left = await asyncio.create_task(parent())
        go_on.set()
        assert await left is not first

    run(main)


def test_owners_are_forgotten_with_their_tasks() -> None:
    async def main() -> None:
        await asyncio.gather(*(owner() for _ in range(50)))

    gc.collect()
    before = len(module._of_task)
    run(main)
    gc.collect()
    assert len(module._of_task) <= before
