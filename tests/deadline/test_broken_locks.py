"""An operator deletes the node of a holder, or of a waiter.

The holder watches its own node from its first heartbeat on, so a break is noticed at once, and a
short hold pays nothing. See CURATOR-211 and -307.
"""

from __future__ import annotations

import pytest
from kazoo.protocol.states import KazooState

from distlock import LockLost, zk_lock
from distlock.contenders.contender import QueuedContender
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.losses import Loss, await_own_watch
from tests.kit.tools import PATIENCE, MakeOwner, Tree, forgets_all, inside, within

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
