"""An operator breaks just the node that was shown."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from distlock import LockLost, LockUnavailable, revoke, zk_lease, zk_lock
from distlock.keys.znodes import Participant
from distlock.locks import revocation
from distlock.locks.revocation import break_node
from distlock_chaos.proxy import TcpProxy
from tests.inspection.tools import ONLY_NOBODY, cleared, found, stand, the_lock
from tests.kit.helpers import eventually
from tests.kit.losses import await_own_watch
from tests.kit.tools import PATIENCE, MakeOwner, Tree
from tests.lease.tools import node_path

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]


def shown(key: str = "key") -> Participant:
    """Whom a face shows as the holder."""
    return the_lock(key).holders[0].participant


def test_the_holder_that_was_shown_loses_its_lock_and_the_next_one_gets_it(
    tree: Tree, make_owner: MakeOwner
) -> None:
    lock, rival = zk_lock("key"), make_owner()
    hold = lock.__enter__()
    await_own_watch(tree, hold)
    got = rival.submit(zk_lock("key", using="other").acquire, timeout=3 * PATIENCE)
    tree.await_line("key", 2)
    holder = shown()
    assert break_node(holder, using="other")
    assert got.result(PATIENCE)
    eventually(lambda: hold.lost, PATIENCE)
    with pytest.raises(LockLost):
        lock.__exit__(None, None, None)
    # Again, and by whoever still sees the old page: the new holder keeps the lock.
    assert not break_node(holder)
    assert tree.line("key")
    rival.now(zk_lock("key", using="other").release)


def test_of_two_operators_one_breaks_it(tree: Tree, make_owner: MakeOwner) -> None:
    with cleared(tree):
        for _ in range(10):
            stand(tree, "key")
            holder, start = shown(), threading.Barrier(2)

            def both(holder: Participant = holder, start: threading.Barrier = start) -> bool:
                start.wait(PATIENCE)
                return break_node(holder)

            outcomes = [make_owner().submit(both) for _ in range(2)]
            assert sorted(one.result(PATIENCE) for one in outcomes) == [False, True]


def test_a_node_made_anew_in_the_same_place_is_left_alone(tree: Tree) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        holder = shown()
        tree.client.delete(path)
        tree.client.create(path, b"10.0.0.7")
        assert not break_node(holder)
        assert tree.client.exists(path)


def test_a_node_that_was_asked_to_leave_since_is_broken(tree: Tree) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        holder = shown()
        assert revoke(holder)
        assert break_node(holder)
        assert not tree.client.exists(path)


def test_a_lease_is_broken_although_it_was_renewed_since(tree: Tree) -> None:
    lease = zk_lease("key", 600, owner="me")
    assert lease.acquire()
    holder = shown()
    lease.renew()
    assert break_node(holder)
    assert found().locks == ()
    assert not tree.client.exists(node_path(tree, "key"))


def test_a_lease_that_somebody_has_taken_over_is_left_alone() -> None:
    first = zk_lease("key", 600, owner="first")
    assert first.acquire()
    holder = shown()
    first.release()
    second = zk_lease("key", 600, owner="second")
    assert second.acquire()
    assert not break_node(holder)
    assert shown().owner_id == "second"
    second.release()


def test_a_lease_that_is_renewed_in_the_very_instant_is_broken_at_the_second_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lease = zk_lease("key", 600, owner="me")
    assert lease.acquire()
    deletion = revocation._deletion
    tries = []

    def and_then_it_is_renewed(*args: object) -> object:
        tries.append(args)
        delete = deletion(*args)  # type: ignore[arg-type]  # passed on as they came
        if len(tries) == 1:
            lease.renew()
        return delete

    monkeypatch.setattr(revocation, "_deletion", and_then_it_is_renewed)
    assert break_node(shown())
    assert len(tries) == 2


def test_a_leases_node_that_says_nothing_can_be_broken_as_shown(tree: Tree) -> None:
    with cleared(tree):
        path = node_path(tree, "key")
        tree.client.create(path, b"?", makepath=True)
        holder = shown()
        tree.client.set(path, b"??")
        assert not break_node(holder)
        assert break_node(shown())
        assert not tree.client.exists(path)


def test_a_leases_node_that_is_written_in_the_very_instant_is_left_alone(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cleared(tree):
        path = node_path(tree, "key")
        tree.client.create(path, b"?", makepath=True)
        deletion = revocation._deletion

        def and_then_it_is_written(*args: object) -> object:
            delete = deletion(*args)  # type: ignore[arg-type]  # passed on as they came
            tree.client.set(path, b"??")
            return delete

        monkeypatch.setattr(revocation, "_deletion", and_then_it_is_written)
        assert not break_node(shown())
        assert tree.client.exists(path)


@pytest.mark.engines("zookeeper")
def test_what_may_not_be_read_is_not_broken(tree: Tree) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        tree.client.set_acls(path, ONLY_NOBODY)
        with pytest.raises(LockUnavailable, match="no permission"):
            break_node(shown())
        assert tree.client.exists(path)


def test_without_an_answer_it_is_an_error(broken_link: TcpProxy, tree: Tree) -> None:
    with cleared(tree):
        stand(tree, "key")
        holder = shown()
        broken_link.black_hole()
        with pytest.raises(LockUnavailable):
            break_node(holder)
        assert not break_node(replace(holder, token=holder.token + 1), using="other")
        assert break_node(holder, using="other")
