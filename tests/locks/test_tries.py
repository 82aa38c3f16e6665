"""A try gets a lock that is free, whoever has given up waiting for it just before."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from distlock import zk_lock
from distlock.contenders.batch import BatchMember
from distlock.locks.lock import KeyLock
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, held_back, settle
from tests.locks.test_lock import RECIPES

pytestmark = pytest.mark.usefixtures("tree")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_try_gets_what_was_just_released_after_a_waiter_had_given_up(recipe: str) -> None:
    lock = RECIPES[recipe](timeout=None)
    rival = RECIPES["write" if recipe == "read" else recipe](timeout=None)

    async def hold_while_another_gives_up() -> None:
        async with lock:
            session = session_for()
            before = beneficiaries(session)
            waiting = asyncio.create_task(rival.aacquire())
            await asyncio.sleep(0)
            eventually(lambda: beneficiaries(session) > before, PATIENCE)
            settle(session)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    async def main() -> None:
        for _ in range(20):
            await hold_while_another_gives_up()
            assert await lock.aacquire(timeout=0)
            await lock.arelease()

    asyncio.run(main())


def hand_over(lock: KeyLock, holder: Owner, other: Owner, timeout: float) -> None:
    """Let the other come before the connection thread knows that the holder has released."""
    session, known = session_for(), threading.Event()
    with held_back(session):
        (batch,) = session.batches.values()
        holder.now(lock.release)
        got = other.submit(lock.acquire, timeout=timeout)
        member = eventually(lambda: batch.first, PATIENCE)
        session.soon(known.set)
    assert known.wait(PATIENCE)
    assert member.crowd is None  # or else it depends on a moment whether it is busy
    assert got.result(PATIENCE)


def test_a_try_gets_a_lock_whose_last_turn_is_over(make_owner: MakeOwner) -> None:
    lock, owners = zk_lock("key", handoff=3), [make_owner() for _ in range(4)]
    assert owners[0].now(lock.acquire)
    hand_over(lock, owners[0], owners[1], PATIENCE)
    hand_over(lock, owners[1], owners[2], PATIENCE)
    hand_over(lock, owners[2], owners[3], 0)
    owners[3].now(lock.release)


def test_a_try_gets_it_also_by_the_node_of_a_waiter_who_gave_up(
    tree: Tree, make_owner: MakeOwner
) -> None:
    lock, (holder, other) = zk_lock("key", handoff=1), [make_owner() for _ in range(2)]
    assert holder.now(lock.acquire)
    session = session_for()
    (batch,) = session.batches.values()
    options: Any = {"key": "key", "data": b"", "settled": lambda: None}
    waiter = BatchMember(session, tree.path("key"), handoff=1, **options)
    waiter.join()
    eventually(lambda: batch.next is not None and batch.next.seen_ahead == 1, PATIENCE)
    waiter.leave()
    settle(session)
    assert batch.next is not None
    hand_over(lock, holder, other, 0)
    other.now(lock.release)
