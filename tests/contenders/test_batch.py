"""``handoff=N``: waiters of one process have the lock in turns on one node."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from distlock import LockBusy, LockLost, NotOwner, zk_lock, zk_locked
from distlock.exceptions import StaleToken
from distlock.fencing import token_of
from distlock.session.registry import session_for
from tests.contenders.tools import KEY, Waiter, await_seats, served
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries
from tests.kit.tools import PATIENCE, MakeOwner, Tree, forgets_all, settle

pytestmark = pytest.mark.usefixtures("patient", "tree")


def test_a_hold_whose_turn_is_over_writes_no_more(tree: Tree, make_owner: MakeOwner) -> None:
    """Its token is that of the turn which has begun since, so the database would let it write."""
    lock = zk_lock(KEY, handoff=3, timeout=PATIENCE)
    owners = [make_owner() for _ in range(3)]
    holds = [owners[0].now(lock.__enter__)]
    entered = []
    for number, owner in enumerate(owners[1:], start=1):
        entered.append(owner.submit(lock.__enter__))
        await_seats(tree, number)
    for owner, coming in zip(owners, entered, strict=False):
        assert token_of(holds[-1]) == holds[0].token
        owner.now(lock.release)
        holds.append(coming.result(PATIENCE))
        with pytest.raises(StaleToken, match="was released"):
            token_of(holds[-2])
    owners[-1].now(lock.release)
    assert token_of(holds[-1]) == holds[0].token  # nobody came after it
    assert [(hold.token, hold.turn) for hold in holds] == [(holds[0].token, n) for n in (1, 2, 3)]
    with zk_lock(KEY) as last:
        assert (last.token, last.turn) > (holds[-1].token, holds[-1].turn)


def test_after_so_many_turns_the_next_process_gets_it(tree: Tree, make_owner: MakeOwner) -> None:
    with zk_lock(KEY, using="other"):
        waiters = {name: Waiter(tree, make_owner, handoff=3) for name in "abc"}
        waiters["X"] = Waiter(tree, make_owner, "other")
        waiters |= {name: Waiter(tree, make_owner, handoff=3) for name in "defg"}
        assert len(tree.line(KEY)) == 3  # who holds, the batch, and the other process
    assert served(waiters) == "abcXdefg"
    tree.await_line(KEY, 0)
    tree.await_watches()
    forgets_all(session_for())
    eventually(lambda: not beneficiaries(session_for()), PATIENCE, "nobody who needs the deadline")


def test_a_wait_for_longer_than_a_heartbeat_keeps_its_place(
    tree: Tree, make_owner: MakeOwner
) -> None:
    with zk_lock(KEY, using="other"):
        waiters = {"a": Waiter(tree, make_owner, handoff=3)}
        waiters["X"] = Waiter(tree, make_owner, "other")
        session_for().heartbeat._report()
    assert served(waiters) == "aX"


def test_with_nobody_left_the_next_process_gets_it_at_once(
    tree: Tree, make_owner: MakeOwner
) -> None:
    with zk_lock(KEY, handoff=10):
        other = Waiter(tree, make_owner, "other")
        assert not other.granted.done()
    other.release()
    tree.await_line(KEY, 0)


def test_a_batch_of_fewer_waiters_ends_with_them(tree: Tree, make_owner: MakeOwner) -> None:
    with zk_lock(KEY, using="other"):
        waiters = {name: Waiter(tree, make_owner, handoff=10) for name in "ab"}
        waiters["X"] = Waiter(tree, make_owner, "other")
    assert served(waiters) == "abX"
    tree.await_line(KEY, 0)


def test_the_token_is_that_of_the_batch_and_rises_with_the_next(
    tree: Tree, make_owner: MakeOwner
) -> None:
    with zk_lock(KEY, handoff=2) as hold:
        waiters = [Waiter(tree, make_owner, handoff=2) for _ in range(4)]
    tokens = [hold.token]
    for waiter in waiters:
        tokens.append(waiter.token)
        waiter.release()
    assert tokens[0] == tokens[1] < tokens[2] == tokens[3] < tokens[4]


def test_waiters_with_and_without_handoff_and_with_other_numbers_stand_in_one_line(
    tree: Tree, make_owner: MakeOwner
) -> None:
    with zk_lock(KEY):
        waiters = {"a": Waiter(tree, make_owner, handoff=2)}
        waiters["x"] = Waiter(tree, make_owner)
        waiters["b"] = Waiter(tree, make_owner, handoff=4)
        waiters["c"] = Waiter(tree, make_owner, handoff=1)
        waiters["d"] = Waiter(tree, make_owner, handoff=2)
    assert served(waiters) == "abcxd"  # after c's one turn the batch is over


@pytest.mark.parametrize("place", [0, 1, 2])
def test_who_gives_up_before_its_turn_is_passed_over(
    tree: Tree, make_owner: MakeOwner, place: int
) -> None:
    waiters: dict[str, Waiter] = {}
    with zk_lock(KEY, using="other"):
        for number, name in enumerate("abc"):
            if number == place:
                quitter = make_owner().submit(zk_lock(KEY, handoff=2).acquire, timeout=2)
                await_seats(tree, number + 1)
            waiters[name] = Waiter(tree, make_owner, handoff=2)
        assert quitter.result(PATIENCE) is False
        assert len(tree.line(KEY)) == 2
        await_seats(tree, 3)
    assert served(waiters) == "abc"


@pytest.mark.usefixtures("patient", "holder")
def test_when_all_give_up_the_node_goes(tree: Tree, make_owner: MakeOwner) -> None:
    quitters = [make_owner().submit(zk_lock(KEY, handoff=2).acquire, timeout=2) for _ in range(3)]
    tree.await_line(KEY, 2)
    assert not any(quitter.result(PATIENCE) for quitter in quitters)
    tree.await_line(KEY, 1)
    tree.await_watches()
    forgets_all(session_for())


def test_one_owner_enters_again_over_two_objects(tree: Tree, make_owner: MakeOwner) -> None:
    with zk_lock(KEY, handoff=2) as outer:
        with zk_lock(KEY, handoff=2) as inner, zk_lock(KEY) as strict:
            assert outer is inner is strict
            waiter = Waiter(tree, make_owner, handoff=2)
        assert not waiter.granted.done()
        assert len(tree.line(KEY)) == 1
    waiter.release()


def test_only_who_has_its_turn_may_release(tree: Tree, make_owner: MakeOwner) -> None:
    with zk_lock(KEY, handoff=2) as hold:
        waiter = Waiter(tree, make_owner, handoff=2)
        with pytest.raises(NotOwner):
            make_owner().now(waiter.lock.release)
        hold.verify()
    with pytest.raises(LockLost):
        hold.check()
    waiter.release()


@pytest.mark.parametrize("using", ["default", "other"])
@pytest.mark.parametrize("timeout", [0, 0.3])
def test_who_is_refused_is_told_who_holds(
    make_owner: MakeOwner, using: str, timeout: float
) -> None:
    def enter() -> None:
        with zk_lock(KEY, using=using, handoff=2, timeout=timeout):
            pass

    with zk_lock(KEY, handoff=2) as hold:
        with pytest.raises(LockBusy) as raised:
            make_owner().now(enter)
        holder = raised.value.holder
        assert holder is not None
        assert holder.path == hold.path
        assert "MainThread" in str(holder)


def test_the_owner_id_of_a_batch_is_its_own() -> None:
    """Who made the node may have had its turn, and wait elsewhere for who has it now."""
    with zk_lock("another"), zk_lock(KEY, handoff=2):
        ids = {holder.owner_id for key in ("another", KEY) if (holder := zk_lock(key).holder())}
        assert len(ids) == 2
        assert all(UUID(hex=one) for one in ids)


# --- tasks ---------------------------------------------------------------------------------------


def test_tasks_have_turns_with_threads(tree: Tree, make_owner: MakeOwner) -> None:
    order: list[int] = []

    async def take(number: int) -> int:
        async with zk_lock(KEY, handoff=50, timeout=PATIENCE) as hold:
            order.append(number)
            await asyncio.sleep(0)
            assert order[-1] == number
            return hold.token

    async def all_take() -> list[int]:
        return await asyncio.gather(*map(take, range(10)))

    holder = make_owner()
    assert holder.now(zk_lock(KEY, handoff=50).acquire)
    tasks = make_owner().submit(asyncio.run, all_take())
    await_seats(tree, 10)
    thread = Waiter(tree, make_owner, handoff=50)
    holder.now(zk_lock(KEY, handoff=50).release)
    assert len(set(tasks.result(PATIENCE))) == 1
    assert order == list(range(10))
    thread.release()


def test_a_cancelled_task_lets_the_next_one_have_its_turn(tree: Tree) -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def take() -> None:
            async with zk_lock(KEY, handoff=50, timeout=PATIENCE):
                entered.set()
                await asyncio.sleep(PATIENCE)

        async with zk_lock(KEY, handoff=50):
            tasks = [asyncio.create_task(take()) for _ in range(3)]
            await asyncio.to_thread(await_seats, tree, 3)
            tasks[0].cancel()
            await asyncio.gather(tasks[0], return_exceptions=True)
        await entered.wait()
        entered.clear()
        tasks[1].cancel()
        await entered.wait()
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    tree.await_line(KEY, 0)


# --- what remains --------------------------------------------------------------------------------


def test_many_keys_leave_nothing_behind() -> None:
    for number in range(300):
        with zk_lock(f"key-{number}", handoff=5):
            pass
    session = session_for()
    forgets_all(session)
    settle(session)
    assert not session.local_nodes
    assert not session.newest
    assert not session.contenders


# --- what is asked for ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"handoff": -1}, "0 or more"),
        ({"handoff": True}, "a number of waiters"),
        ({"handoff": 1.5}, "a number of waiters"),
        ({"handoff": "3"}, "a number of waiters"),
        ({"handoff": None}, "a number of waiters"),
        ({"handoff": 2, "fair": False}, "choose one"),
        ({"handoff": 2, "on_revoke": print}, "use on_revoke= without it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        zk_lock(KEY, **options)
    with pytest.raises(ValueError, match=said):
        zk_locked(KEY, **options)


def test_the_decorator_passes_it_on(tree: Tree, make_owner: MakeOwner) -> None:
    @zk_locked(KEY, handoff=5, timeout=PATIENCE)
    def line() -> list[str]:
        return tree.line(KEY)

    with zk_lock(KEY, handoff=5):
        calls = [make_owner().submit(line) for _ in range(3)]
        await_seats(tree, 3)
        (mine,) = tree.line(KEY)
    assert [call.result(PATIENCE)[0] for call in calls] == [mine] * 3
