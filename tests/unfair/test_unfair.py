"""A lock that does not queue (``fair=False``): who waits stands in no line, and leaves nothing."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from distlock import zk_lock
from distlock.engine.deadline import Heartbeat
from distlock.session.registry import session_for
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, forgets_all

pytestmark = pytest.mark.usefixtures("tree")


def head_of(tree: Tree) -> str:
    """The path of the first in line."""
    return f"{tree.path('key')}/{tree.line('key')[0]}"


def let_wait(tree: Tree, owner: Owner, using: str = "default") -> Future[bool]:
    """Let an owner wait for "key", and wait until it watches the holder and stands nowhere."""
    granted = owner.submit(zk_lock("key", using=using, fair=False).acquire, timeout=PATIENCE * 2)
    tree.await_watches(head_of(tree))
    tree.await_line("key", 1)
    return granted


@pytest.mark.usefixtures("patient")
def test_it_is_reentrant_and_excludes(make_owner: MakeOwner) -> None:
    lock, rival = zk_lock("key", fair=False), make_owner()
    with lock as hold, zk_lock("key", fair=False) as again, zk_lock("key"):
        assert again is hold
        assert not rival.now(zk_lock("key", fair=False).acquire, timeout=0)
        assert not rival.now(zk_lock("key", using="other").acquire, timeout=0)
    assert rival.now(lock.acquire)
    rival.now(lock.release)


@pytest.mark.usefixtures("patient")
def test_an_uncontended_acquire_costs_what_a_fair_one_does(
    tree: Tree, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heartbeat, "_beat", lambda _: None)
    with zk_lock("key"):
        tree.client.create(f"{tree.path('key')}/keeps-the-parents", b"")
    costs = []
    for fair in (True, False):
        forgets_all(session_for())
        requests.clear()
        with zk_lock("key", fair=fair):
            pass
        costs.append(list(requests))
    assert costs[0] == costs[1] == ["Create2", "GetChildren", "Delete"]


def test_who_waits_is_no_participant(tree: Tree, holder: Owner, make_owner: MakeOwner) -> None:
    waiter = make_owner()
    granted = let_wait(tree, waiter)
    (only,) = zk_lock("key").participants()
    assert only.path == head_of(tree)
    holder.now(zk_lock("key", using="other").release)
    assert granted.result(PATIENCE)
    waiter.now(zk_lock("key").release)


# --- giving up -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient", "holder")
def test_a_try_watches_nobody(tree: Tree, requests: list[str]) -> None:
    assert not zk_lock("key", fair=False).acquire(blocking=False)
    assert "GetData" not in requests
    tree.await_line("key", 1)
