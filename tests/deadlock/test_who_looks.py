"""Who looks for deadlocks, after how long, and what that costs the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from distlock import zk_lock
from distlock.locks import deadlocks
from distlock.locks.deadlocks import WAITS, DeadlockDetector
from distlock.session.session import Session
from tests.deadlock.tools import AFTER, Other, await_notices, wait
from tests.kit.losses import SetOptions, pass_time
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree


@pytest.fixture
def detectors(monkeypatch: pytest.MonkeyPatch) -> list[DeadlockDetector]:
    """All there are."""
    made: list[DeadlockDetector] = []

    def make(*args: Any) -> DeadlockDetector:
        made.append(DeadlockDetector(*args))
        return made[-1]

    monkeypatch.setattr(deadlocks, "DeadlockDetector", make)
    return made


@pytest.mark.parametrize("holding", [False, True], ids=["empty-handed", "holding"])
def test_of_a_hundred_who_wait_only_those_who_hold_something_look(
    tree_of_waits: Tree,
    make_owner: MakeOwner,
    detectors: list[DeadlockDetector],
    monkeypatch: pytest.MonkeyPatch,
    holding: bool,
) -> None:
    holder, hot = make_owner(), zk_lock("hot", using="other")
    assert holder.now(hot.acquire)
    waiters = 100
    read: list[str] = []
    session_read = Session.read

    def noted(self: Session, path: str, *args: Any) -> None:
        read.append(path)
        session_read(self, path, *args)

    monkeypatch.setattr(Session, "read", noted)

    async def take(number: int) -> None:
        if holding:
            async with zk_lock(f"own{number}", timeout=60), zk_lock("hot", timeout=60):
                pass
        else:
            async with zk_lock("hot", timeout=60):
                pass

    async def main() -> None:
        taken = [asyncio.create_task(take(number)) for number in range(waiters)]
        await asyncio.to_thread(tree_of_waits.await_line, "hot", 1 + waiters)
        if holding:
            await asyncio.to_thread(await_notices, tree_of_waits, waiters)
        await asyncio.to_thread(pass_time, 3 * AFTER)
        holder.now(hot.release)
        await asyncio.gather(*taken)

    asyncio.run(main())
    assert len(detectors) == (waiters if holding else 0)
    # Of the line, the holder's node and the own one, however many wait; and no other lock. One that
    # joins reads the line itself, where it may be the neighbour of another.
    line = tree_of_waits.path("hot")
    looked_at = [
        path
        for path in read
        if path != line and not path.startswith(f"{tree_of_waits.namespace}/{WAITS}")
    ]
    assert bool(looked_at) is holding
    assert all(path.startswith(line) for path in looked_at)
    assert len(looked_at) <= waiters * 2 * 60 / AFTER


def test_a_wait_that_may_not_take_so_long_never_looks(
    other: Other, owner: Owner, detectors: list[DeadlockDetector]
) -> None:
    b = zk_lock("b")
    assert other.holds
    for blocking, timeout in ((False, None), (True, 0), (True, AFTER)):
        assert owner.now(b.acquire, blocking, timeout=timeout) is False
    assert not detectors
    assert owner.now(b.acquire, timeout=1.01 * AFTER) is False
    assert len(detectors) == 1


def test_it_can_be_switched_off(
    tree_of_waits: Tree,
    make_owner: MakeOwner,
    options: SetOptions,
    detectors: list[DeadlockDetector],
) -> None:
    options(DEADLOCK_AFTER=None)
    a, b = zk_lock("a"), zk_lock("b")
    first, second = make_owner(), make_owner()
    assert first.now(a.acquire)
    assert second.now(b.acquire)
    waits = wait(tree_of_waits, second, a)
    assert first.now(b.acquire, timeout=3 * AFTER) is False
    assert not waits.done()
    first.now(a.release)
    assert waits.result(PATIENCE)
    assert not detectors
    second.now(a.release)
    second.now(b.release)
