"""A lock that does not queue (``fair=False``): who waits stands in no line, and leaves nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from distlock import LockLost, LockUnavailable, zk_lock
from distlock.engine.deadline import Heartbeat
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, await_connection, forgets_all

if TYPE_CHECKING:
    from concurrent.futures import Future

    from distlock_chaos.proxy import TcpProxy
    from distlock_chaos.server import ZooKeeper
    from tests.kit.losses import SetOptions

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


def test_who_queues_comes_before_who_does_not(
    tree: Tree, holder: Owner, make_owner: MakeOwner
) -> None:
    unfair, fair = make_owner(), make_owner()
    later = let_wait(tree, unfair)
    granted = fair.submit(zk_lock("key", using="other").acquire, timeout=PATIENCE)
    _, second = tree.await_line("key", 2)
    holder.now(zk_lock("key", using="other").release)
    assert granted.result(PATIENCE)
    # It watches the new head, and has not overtaken it.
    tree.await_watches(f"{tree.path('key')}/{second}")
    assert not later.done()
    fair.now(zk_lock("key", using="other").release)
    assert later.result(PATIENCE)
    unfair.now(zk_lock("key").release)


# --- giving up -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient", "holder")
def test_a_try_watches_nobody(tree: Tree, requests: list[str]) -> None:
    assert not zk_lock("key", fair=False).acquire(blocking=False)
    assert "GetData" not in requests
    tree.await_line("key", 1)


@pytest.mark.usefixtures("patient")
def test_who_gives_up_takes_no_watch_from_others_of_its_process(
    tree: Tree, holder: Owner, make_owner: MakeOwner
) -> None:
    # removeWatches removes all watches of the connection on a path.
    stays, leaves, lock = make_owner(), make_owner(), zk_lock("key", fair=False)
    granted = let_wait(tree, stays)
    for _ in range(20):
        assert not leaves.now(lock.acquire, timeout=0.02)
    tree.await_watches(head_of(tree))
    assert not granted.done()
    holder.now(zk_lock("key", using="other").release)
    assert granted.result(PATIENCE)
    stays.now(lock.release)


def test_a_task_waits_and_is_granted(tree: Tree, holder: Owner) -> None:
    async def take() -> None:
        async with zk_lock("key", fair=False, timeout=PATIENCE) as hold:
            hold.check()

    async def wait() -> None:
        waiting = asyncio.create_task(take())
        await asyncio.to_thread(tree.await_watches, head_of(tree))
        await asyncio.to_thread(holder.now, zk_lock("key", using="other").release)
        await waiting

    asyncio.run(wait())


# --- when something breaks ------------------------------------------------------------------------


def test_a_cut_of_the_link_does_not_end_a_wait(
    broken_link: TcpProxy, set_options: SetOptions, tree: Tree, make_owner: MakeOwner
) -> None:
    set_options(SESSION_TIMEOUT=20, CONNECT_TIMEOUT=PATIENCE)
    holder, waiter = make_owner(), make_owner()
    theirs = zk_lock("key", using="other")
    holder.now(theirs.acquire)
    granted = let_wait(tree, waiter)
    for _ in range(3):
        broken_link.cut()
        eventually(lambda: not session_for().connected, PATIENCE, "a lost connection")
        broken_link.pass_through()
        eventually(lambda: session_for().connected, PATIENCE, "a connection")
        tree.await_watches(head_of(tree))
    assert not granted.done()
    broken_link.cut()
    holder.now(theirs.release)  # it is not heard
    tree.await_line("key", 0)
    broken_link.pass_through()
    assert granted.result(PATIENCE)
    tree.await_line("key", 1)
    waiter.now(zk_lock("key").release)
    forgets_all(session_for())


def test_many_waiters_of_one_process_outlive_a_cut_and_leave_one_node(
    broken_link: TcpProxy, set_options: SetOptions, tree: Tree, make_owner: MakeOwner
) -> None:
    set_options(SESSION_TIMEOUT=20, CONNECT_TIMEOUT=PATIENCE)
    holder, lock = make_owner(), zk_lock("key", fair=False)
    theirs = zk_lock("key", using="other")
    holder.now(theirs.acquire)
    waiters = [make_owner() for _ in range(8)]
    for _ in range(3):
        waits = [owner.submit(lock.acquire, timeout=PATIENCE * 2) for owner in waiters]
        broken_link.cut()
        eventually(lambda: not session_for().connected, PATIENCE, "a lost connection")
        broken_link.pass_through()
        holder.now(theirs.release)
        for owner, wait in zip(waiters, waits, strict=True):
            wait.add_done_callback(partial(_release, owner))
        assert all(wait.result(PATIENCE * 2) for wait in waits)
        tree.await_line("key", 0)
        assert holder.now(theirs.acquire, timeout=PATIENCE)
    holder.now(theirs.release)
    forgets_all(session_for())


def _release(owner: Owner, _: Future[bool]) -> None:
    owner.submit(zk_lock("key").release)


def test_a_wait_without_a_server_ends_with_unavailable(
    own_zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    holder, waiter = make_owner(), make_owner()
    holder.now(zk_lock("key", using="other").acquire)
    waiting = waiter.submit(zk_lock("key", fair=False).acquire, timeout=2)
    await_connection()
    own_zookeeper.servers[0].kill()
    with pytest.raises(LockUnavailable):
        waiting.result(PATIENCE)
    own_zookeeper.servers[0].start()
    eventually(lambda: session_for("other").connected, PATIENCE, "a connection")
    with suppress(LockLost):  # the restart may take longer than the lease
        holder.now(zk_lock("key", using="other").release)
    assert waiter.now(zk_lock("key", fair=False).acquire, timeout=PATIENCE)
    waiter.now(zk_lock("key").release)
