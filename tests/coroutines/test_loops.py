"""Event loops: a second, a closing or closed one, one in a fork, and one with a crowd in it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from distlock import zk_lock, zk_rwlock, zk_semaphore
from distlock.contenders import grant
from distlock.session import patience
from distlock.session.registry import session_for
from tests.coroutines.tools import await_empty
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, await_connection, forgets_all

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

KEY = "key"
theirs = zk_lock(KEY, using="other")


def test_tasks_of_several_loops_take_turns() -> None:
    inside: list[object] = []
    times = 0

    async def work() -> None:
        nonlocal times
        async with zk_lock(KEY, timeout=PATIENCE) as hold:
            inside.append(hold)
            await asyncio.sleep(0)
            assert inside == [hold]
            inside.pop()
            times += 1

    async def main() -> None:
        await asyncio.gather(*(work() for _ in range(5)))

    with Owner() as one, Owner() as other, Owner() as third:
        for done in [loop.submit(asyncio.run, main()) for loop in (one, other, third)]:
            done.result(PATIENCE)
    assert times == 15


@pytest.mark.usefixtures("holder")
def test_a_task_that_a_closing_loop_cancels_leaves_the_line(tree: Tree) -> None:
    ended: list[str] = []

    async def wait_in_line() -> None:
        try:
            async with zk_lock(KEY, timeout=None):
                ended.append("had it")
        finally:
            ended.append("ended")

    async def main() -> None:
        main.left = asyncio.create_task(wait_in_line())  # type: ignore[attr-defined]
        await asyncio.to_thread(tree.await_line, KEY, 2)

    asyncio.run(main())
    assert ended == ["ended"]
    tree.await_line(KEY, 1)


def test_a_lock_can_be_taken_while_the_loop_is_closing(tree: Tree) -> None:
    """A task may clean up under a lock after `asyncio.run` has cancelled it."""
    cleaned_up: list[int] = []

    async def work() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            async with zk_lock(KEY, timeout=PATIENCE) as hold:
                await asyncio.sleep(0)
                cleaned_up.append(hold.token)

    async def main() -> None:
        main.left = asyncio.create_task(work())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    asyncio.run(main())
    assert len(cleaned_up) == 1
    tree.await_line(KEY, 0)


def test_a_grant_that_comes_to_a_closed_loop_is_given_back(tree: Tree, holder: Owner) -> None:
    """Nobody has cancelled the task, which therefore stands in line until its turn."""
    session = await_connection()
    loop = asyncio.new_event_loop()
    left = loop.create_task(zk_lock(KEY, timeout=None).aacquire())
    loop.run_until_complete(asyncio.to_thread(tree.await_line, KEY, 2))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    holder.now(theirs.release)
    tree.await_line(KEY, 0)
    forgets_all(session)
    assert not left.done()
    left.get_coro().close()
    left._log_destroy_pending = False  # type: ignore[attr-defined]  # it was, on purpose


LOCKS: dict[str, Callable[[str], Any]] = {
    "mutex": lambda using: zk_lock(KEY, using=using),
    "handoff": lambda using: zk_lock(KEY, using=using, handoff=2),
    "write": lambda using: zk_rwlock(KEY, using=using).write,
    "semaphore": lambda using: zk_semaphore(KEY, 1, using=using),
}
each_lock = pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS.keys())


@contextmanager
def waiting_in_a_loop(acquire: Callable[[], Coroutine[Any, Any, bool]]) -> Iterator[Any]:
    """Let a task of a loop that nobody runs wait until somebody is ahead, and yield the two."""
    session = await_connection()
    loop = asyncio.new_event_loop()
    task = loop.create_task(acquire())
    loop.run_until_complete(asyncio.sleep(0))
    eventually(
        lambda: any(getattr(one, "ahead", 0) for one in session.heartbeat.beneficiaries()),
        PATIENCE,
        "one who waits",
    )
    try:
        yield loop, task
    finally:
        loop.close()
        forgets_all(session)
        task.get_coro().close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was, on purpose


@each_lock
def test_a_grant_that_a_loop_is_closed_on_is_given_back(
    lock: Callable[[str], Any], make_owner: MakeOwner
) -> None:
    """The wake-up is in the queue of the loop, which never runs it."""
    rival, holder = lock("other"), make_owner()
    assert holder.now(rival.acquire)
    with waiting_in_a_loop(partial(lock("default").aacquire, timeout=None)) as (loop, _):
        holder.now(rival.release)
        eventually(lambda: loop._ready, PATIENCE, "the wake-up")
        loop.close()
        assert holder.now(rival.acquire, timeout=PATIENCE)
        holder.now(rival.release)


@each_lock
def test_a_waiter_in_a_loop_that_stands_still_gives_up_after_its_time(
    lock: Callable[[str], Any], make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ANSWER_SECONDS", 0.4)
    monkeypatch.setattr(grant, "OVERDUE_SECONDS", 0.5)
    rival, holder = lock("other"), make_owner()
    assert holder.now(rival.acquire)
    with waiting_in_a_loop(partial(lock("default").aacquire, timeout=0.5)) as (loop, task):
        forgets_all(await_connection())
        holder.now(rival.release)
        assert holder.now(rival.acquire, timeout=PATIENCE)
        assert loop.run_until_complete(task) is False
        holder.now(rival.release)


# --- a thousand coroutines -----------------------------------------------------------------------


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
