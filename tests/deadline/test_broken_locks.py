"""An operator deletes the node of a holder, or of a waiter.

The holder watches its own node from its first heartbeat on, so a break is noticed at once, and a
short hold pays nothing. See CURATOR-211 and -307.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from kazoo.client import TransactionRequest
from kazoo.protocol.states import KazooState

from distlock import LockLost, zk_lock, zk_semaphore
from distlock.contenders.contender import QueuedContender
from distlock.session.registry import session_for
from tests.contenders.tools import Waiter
from tests.kit.helpers import eventually
from tests.kit.losses import Loss, await_own_watch
from tests.kit.tools import PATIENCE, MakeOwner, Tree, forgets_all, inside, settle, within

KEY = "key"

pytestmark = pytest.mark.usefixtures("tree")


def test_a_break_is_noticed_at_once_and_the_next_in_line_has_the_lock(
    tree: Tree, losses: list[Loss], make_owner: MakeOwner
) -> None:
    waiter, waiters = make_owner(), zk_lock(KEY, using="other")
    with pytest.raises(LockLost) as raised, zk_lock(KEY) as hold:  # noqa: PT012
        granted = waiter.submit(waiters.acquire, timeout=PATIENCE)
        tree.await_line(KEY, 2)
        await_own_watch(tree, hold)
        with within(0.5):
            tree.client.delete(hold.path)
            eventually(lambda: hold.lost)
            eventually(lambda: losses)
        with pytest.raises(LockLost):
            hold.check()
        assert hold.valid_for() == 0
        assert granted.result(PATIENCE)
    assert raised.value.hold is hold
    assert [loss.hold for loss in losses] == [hold]
    assert losses[0].thread == "distlock-default-heartbeat"
    assert len(tree.line(KEY)) == 1
    waiter.now(waiters.release)
    forgets_all(session_for())


def test_verify_notices_a_break_that_no_watch_has_told(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueuedContender, "deadline_renewed", lambda _: None)
    with pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
        hold.verify()
        tree.client.delete(hold.path)
        assert not hold.lost
        with pytest.raises(LockLost):
            hold.verify()
        assert hold.lost


def test_a_write_to_the_node_is_no_break_and_ends_no_watch(tree: Tree) -> None:
    with pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
        await_own_watch(tree, hold)
        tree.client.set(hold.path, b"__REVOKE__")
        await_own_watch(tree, hold)  # with the next heartbeat
        hold.check()
        with within(0.5):
            tree.client.delete(hold.path)
            eventually(lambda: hold.lost)


def test_a_watch_that_went_with_the_connection_comes_back(tree: Tree) -> None:
    with pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
        await_own_watch(tree, hold)
        states: list[str] = []
        inside(session_for()).add_listener(states.append)
        session_for()._client.drop()
        eventually(lambda: states[-1:] == [KazooState.CONNECTED])  # again
        await_own_watch(tree, hold)
        hold.check()
        with within(0.5):
            tree.client.delete(hold.path)
            eventually(lambda: hold.lost)


# --- a whole line --------------------------------------------------------------------------------


def remove_line(tree: Tree) -> None:
    """Delete what is under the key, first come first, and the key's own node, all at once."""

    def removed() -> bool:
        transaction = tree.client.transaction()
        remove(tree.path(KEY), transaction)
        return all(outcome is True for outcome in transaction.commit())

    def remove(path: str, transaction: TransactionRequest) -> None:
        for name in sorted(tree.children(path), key=lambda name: name[-10:]):
            remove(f"{path}/{name}", transaction)
        transaction.delete(path)

    eventually(removed, PATIENCE)  # somebody may come or go between the list and the delete


def begin_anew(tree: Tree, number: int) -> None:
    """Do so in one transaction, after which the line's next node gets this number."""
    path, transaction = tree.path(KEY), tree.client.transaction()
    for name in tree.children(path):
        transaction.delete(f"{path}/{name}")
    transaction.delete(path)
    transaction.create(path)
    for used in range(number):
        transaction.create(f"{path}/used-", sequence=True)
        transaction.delete(f"{path}/used-{used:010d}")
    outcomes = transaction.commit()
    assert not any(isinstance(outcome, Exception) for outcome in outcomes), outcomes


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.usefixtures("patient")  # no heartbeat says that the nodes are gone
def test_a_line_that_one_transaction_begins_anew_is_another_one(
    tree: Tree, make_owner: MakeOwner, count: int
) -> None:
    """With a second one of us, the line was read before."""
    for _ in range(10):  # so that the numbers are greater than the distance of the transactions
        with zk_lock(KEY):
            pass
    tree.await_line(KEY, 0)
    ours = [Waiter(tree, make_owner) for _ in range(count)]
    last = int(tree.line(KEY)[-1][-10:])
    begin_anew(tree, last)
    rival = Waiter(tree, make_owner, using="other")
    assert rival.granted.result(PATIENCE)
    late = Waiter(tree, make_owner)
    assert [int(name[-10:]) for name in tree.line(KEY)] == [last, last + 1]
    for one in ours:
        with suppress(LockLost):
            one.release()
    settle(session_for())
    assert not late.granted.done()
    rival.release()
    late.release()


def test_all_waiters_of_a_removed_semaphore_have_their_turn(
    tree: Tree, make_owner: MakeOwner
) -> None:
    holder, others, served = make_owner(), zk_semaphore(KEY, 1, using="other"), []
    holder.now(others.acquire)

    def work(number: int) -> None:
        using = ["default", "other"][number % 2]
        with zk_semaphore(KEY, 1, timeout=PATIENCE, using=using):
            served.append(number)

    waiters = [make_owner().submit(work, number) for number in range(4)]
    eventually(lambda: len(tree.children(f"{tree.path(KEY)}/locks")) == 4, PATIENCE)
    remove_line(tree)
    for waiter in waiters:
        waiter.result(PATIENCE)
    assert sorted(served) == [0, 1, 2, 3]
    with suppress(LockLost):  # it knows from its first heartbeat on
        holder.now(others.release)
