"""Blocks: what they take and release, and what they say at their end."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from distlock import LockBusy, LockInTransaction, LockLost, zk_lease
from distlock.lease.hold import Block
from tests.kit.tools import MakeOwner, Tree
from tests.lease.tools import LONG, SHORT, owner_of, said

pytestmark = pytest.mark.usefixtures("tree")


def test_a_block_without_an_owner_is_its_threads(tree: Tree, make_owner: MakeOwner) -> None:
    lease, other = zk_lease("key", LONG, timeout=0), make_owner()
    with lease as hold:
        assert lease.held
        assert hold.owner == owner_of(tree, "key")
        assert lease.renew() is hold
        with zk_lease("key", LONG) as inner:
            assert inner is hold
        assert lease.held
        assert not other.now(lambda: lease.held)
        with pytest.raises(LockBusy):
            other.now(lease.__enter__)
    assert said(tree, "key") is None
    assert hold.released
    assert hold.valid_for() == 0
    with pytest.raises(LockLost, match="was released"):
        hold.check()


@pytest.mark.parametrize("error", [None, KeyError("the body's own")])
def test_the_end_of_a_block_tells_a_loss_unless_the_body_has_raised(
    tree: Tree, error: Exception | None
) -> None:
    with pytest.raises(type(error) if error else LockLost), zk_lease("key", SHORT) as hold:  # noqa: PT012
        assert zk_lease("key", LONG, owner="you").acquire()
        if error:
            raise error
    assert hold.lost
    assert owner_of(tree, "key") == "you"


def test_a_block_may_release_early(tree: Tree) -> None:
    lease = zk_lease("key", LONG, owner="me")
    with lease:
        lease.release()
        assert zk_lease("key", LONG, owner="you").acquire(timeout=0)
    assert owner_of(tree, "key") == "you"


def test_a_block_leaves_the_lease_to_another_process_that_has_renewed_it(tree: Tree) -> None:
    with zk_lease("key", LONG, owner="me"):
        assert zk_lease("key", LONG, owner="me", using="other").acquire()
    assert owner_of(tree, "key") == "me"


def test_a_lost_block_does_not_end_the_lease_that_its_owner_has_taken_since(tree: Tree) -> None:
    lease = zk_lease("key", SHORT, owner="me")
    with pytest.raises(LockLost), lease as lost:  # noqa: PT012
        yours = zk_lease("key", LONG, owner="you")
        assert yours.acquire()
        yours.release()
        assert zk_lease("key", LONG, owner="me").acquire()
    assert lost.lost
    assert owner_of(tree, "key") == "me"


@pytest.mark.django_db(transaction=True)
def test_a_block_does_not_begin_in_a_transaction_but_an_acquire_may() -> None:
    with transaction.atomic():
        with pytest.raises(LockInTransaction, match="on_commit"), zk_lease("key", LONG):
            pass
        assert zk_lease("key", LONG, owner="me").acquire()
    with zk_lease("key", LONG, owner="me"), transaction.atomic(), zk_lease("key", 9, owner="me"):
        pass


def test_a_block_that_was_interrupted_before_it_began_is_not_another_ones(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two instructions of its beginning, where no test by lines lands."""
    lease, make = zk_lease("key", LONG), Block.__init__

    def interrupted(self: Block, *args: Any) -> None:
        make(self, *args)
        raise KeyboardInterrupt

    with lease:
        with monkeypatch.context() as patch:
            patch.setattr(Block, "__init__", interrupted)
            with pytest.raises(KeyboardInterrupt), lease:
                pass
        assert lease.held
    assert said(tree, "key") is None
