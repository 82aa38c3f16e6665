"""A thousand coroutines of one process wait at once: no thread is taken, nobody is forgotten."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from distlock import zk_lock, zk_semaphore
from distlock.session.registry import session_for
from tests.coroutines.tools import await_empty
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, forgets_all

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

COROUTINES = 1_000
KEYS = [f"key-{number}" for number in range(10)]


def threads() -> Counter[str]:
    """The names of all threads, without those of the tests' own `asyncio.to_thread`."""
    return Counter(
        name for one in threading.enumerate() if not (name := one.name).startswith("asyncio_")
    )


def threads_beside_one_lock() -> Counter[str]:
    """What a process that holds a single lock has: its connection and its heartbeat."""
    await_connection()
    with zk_lock("first"):
        return threads()


def test_a_thousand_coroutines_on_ten_keys_are_served_without_a_thread(
    tree: Tree, make_owner: MakeOwner
) -> None:
    holder = make_owner()
    for key in KEYS:  # so that all wait at the same time
        assert holder.now(zk_lock(key, using="other").acquire)
    inside = dict.fromkeys(KEYS, 0)
    served: dict[str, list[int]] = {key: [] for key in KEYS}
    before = threads_beside_one_lock()

    async def buy(number: int) -> None:
        key = KEYS[number % len(KEYS)]
        async with zk_lock(key, timeout=None) as hold:
            inside[key] += 1
            assert inside[key] == 1
            await asyncio.sleep(0)
            served[key].append(hold.token)
            inside[key] -= 1

    async def main() -> None:
        crowd = [asyncio.create_task(buy(number)) for number in range(COROUTINES)]
        for key in KEYS:
            await asyncio.to_thread(tree.await_line, key, 1 + COROUTINES // len(KEYS))
        assert threads() <= before  # one of an earlier test may end meanwhile
        for key in KEYS:
            holder.now(zk_lock(key, using="other").release)
        await asyncio.wait_for(asyncio.gather(*crowd), 120)

    asyncio.run(main())
    for tokens in served.values():
        assert tokens == sorted(tokens)
        assert len(set(tokens)) == COROUTINES // len(KEYS)
    assert threads() <= before
    eventually(lambda: not tree.lock_nodes(), PATIENCE, "a tree without lock nodes")
    forgets_all(session_for())


def test_coroutines_that_wait_for_leases_take_no_thread(tree: Tree) -> None:
    before = threads_beside_one_lock()
    inside = most = 0

    async def send() -> None:
        nonlocal inside, most
        async with zk_semaphore("mail", 3, timeout=None):
            inside += 1
            most = max(most, inside)
            assert threads() <= before
            await asyncio.sleep(0)
            inside -= 1

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*(send() for _ in range(100))), 120)

    asyncio.run(main())
    assert 1 <= most <= 3
    assert threads() <= before
    for part in ("locks", "leases"):
        await_empty(tree, f"{tree.path('mail')}/{part}")
    forgets_all(session_for())
