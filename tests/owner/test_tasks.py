"""The owner in async code is the task, and never a sibling or a child.

Two coroutines share a thread; context variables are copied to child tasks.
"""

from __future__ import annotations

import asyncio
import gc
import sys

from distlock.owner import owner as module
from distlock.owner.owner import Owner, current
from tests.owner.calls import owner, run


def test_a_task_is_one_owner() -> None:
    async def main() -> None:
        mine = current()
        await asyncio.sleep(0)
        assert await owner() is mine is current()

    run(main)


def test_a_task_is_another_owner_than_the_thread_it_runs_in() -> None:
    mine = current()

    async def main() -> None:
        assert current() is not mine

    run(main)
    assert current() is mine


def test_gathered_coroutines_are_different_owners() -> None:
    async def main() -> None:
        found = await asyncio.gather(*(owner() for _ in range(5)))
        assert len({id(one) for one in (*found, current())}) == 6

    run(main)


if sys.version_info >= (3, 11):  # TaskGroup is new there

    def test_children_of_a_task_group_are_different_owners() -> None:
        async def main() -> None:
            async with asyncio.TaskGroup() as group:
                children = [group.create_task(owner()) for _ in range(3)]
            assert (
                len({id(one) for one in (*(child.result() for child in children), current())}) == 4
            )

        run(main)


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


def test_wait_for_with_a_coroutine_belongs_to_whoever_it_says() -> None:
    """It made a child task until Python 3.12: a new owner, which is the safe answer."""

    async def main() -> None:
        found = await asyncio.wait_for(owner(), 5)
        assert (found is current()) == (sys.version_info >= (3, 12))

    run(main)


def test_owners_are_forgotten_with_their_tasks() -> None:
    async def main() -> None:
        await asyncio.gather(*(owner() for _ in range(50)))

    gc.collect()
    before = len(module._of_task)
    run(main)
    gc.collect()
    assert len(module._of_task) <= before
