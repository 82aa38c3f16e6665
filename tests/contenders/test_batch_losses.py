"""Batches whose node, session or server is lost: the holder is told, and the others go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distlock import LockLost, LockUnavailable, zk_lock
from distlock.exceptions import IncompatiblePeer
from distlock.session.registry import session_for
from tests.contenders.tools import KEY, Waiter
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, expire

if TYPE_CHECKING:
    from pytest_django import Settings

    from distlock_chaos.proxy import TcpProxy
    from distlock_chaos.server import ZooKeeper
    from tests.kit.losses import Loss

pytestmark = pytest.mark.usefixtures("patient", "tree")


def test_when_the_session_ends_the_holder_is_told_and_the_others_go_on(
    tree: Tree,
    zookeeper: ZooKeeper,
    make_owner: MakeOwner,
    losses: list[Loss],
) -> None:
    stuck = make_owner()
    lock = zk_lock(KEY, handoff=10)
    hold = stuck.now(lock.__enter__)
    waiters = [Waiter(tree, make_owner, handoff=10) for _ in range(3)]
    expire(zookeeper.hosts, session_for())
    token = waiters[0].token  # though the first one has not left
    assert token > hold.token
    assert hold.lost
    eventually(lambda: [loss.hold for loss in losses] == [hold], PATIENCE)
    with pytest.raises(LockLost):
        stuck.now(lock.__exit__, None, None, None)
    for waiter in waiters:
        assert waiter.token == token
        waiter.release()
    tree.await_line(KEY, 0)


@pytest.mark.parametrize("turns", [2, 10])
def test_a_stuck_holder_that_an_operator_breaks_lets_the_next_one_in(
    tree: Tree, make_owner: MakeOwner, losses: list[Loss], turns: int
) -> None:
    stuck = make_owner()
    hold = stuck.now(zk_lock(KEY, handoff=turns).__enter__)
    waiters = [Waiter(tree, make_owner, handoff=turns) for _ in range(2)]
    tree.client.delete(hold.path)
    assert waiters[0].token > hold.token
    eventually(lambda: [loss.hold for loss in losses] == [hold], PATIENCE)
    with pytest.raises(LockLost):
        stuck.now(zk_lock(KEY, handoff=turns).release)
    for waiter in waiters:
        waiter.release()
    tree.await_line(KEY, 0)


def test_what_verify_finds_gone_is_not_handed_on(tree: Tree, make_owner: MakeOwner) -> None:
    with pytest.raises(LockLost), zk_lock(KEY, handoff=3) as hold:  # noqa: PT012
        waiter = Waiter(tree, make_owner, handoff=3)
        tree.client.delete(hold.path)
        with pytest.raises(LockLost):
            hold.verify()
    assert waiter.token > hold.token
    waiter.release()


def test_a_batch_survives_a_cut(tree: Tree, broken_link: TcpProxy, make_owner: MakeOwner) -> None:
    with zk_lock(KEY, handoff=2) as hold:
        waiters = [Waiter(tree, make_owner, handoff=2) for _ in range(4)]
        broken_link.drop()
        await_connection()
    assert waiters[0].token == hold.token
    broken_link.drop()
    for waiter in waiters:
        waiter.release()
    tree.await_line(KEY, 0)


def test_all_are_told_of_a_peer_with_whom_no_order_can_be_kept(
    tree: Tree, make_owner: MakeOwner
) -> None:
    tree.client.ensure_path(tree.path(KEY))
    peer = tree.client.create(f"{tree.path(KEY)}/{'0' * 32}__lock__", b"", sequence=True)
    waits = [
        make_owner().submit(zk_lock(KEY, handoff=2).acquire, timeout=PATIENCE) for _ in range(3)
    ]
    for wait in waits:
        with pytest.raises(IncompatiblePeer):
            wait.result(PATIENCE)
    tree.client.delete(peer)
    assert zk_lock(KEY, handoff=2).acquire()
    zk_lock(KEY, handoff=2).release()


def test_without_a_server_all_get_an_answer(two_sessions: Settings, make_owner: MakeOwner) -> None:
    away = {**two_sessions.DISTLOCK["default"], "HOSTS": "127.0.0.1:1", "CONNECT_TIMEOUT": 0.5}
    two_sessions.DISTLOCK = {**two_sessions.DISTLOCK, "away": away}
    waits = [
        make_owner().submit(zk_lock(KEY, using="away", handoff=2).acquire, timeout=0.5)
        for _ in range(3)
    ]
    for wait in waits:
        with pytest.raises(LockUnavailable):
            wait.result(PATIENCE)
