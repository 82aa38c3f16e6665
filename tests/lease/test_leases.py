"""A lease belongs to an owner id: taken, renewed and released wherever the id is known."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pytest_django import Settings

from distlock import Hold, LockBusy, LockLost, NotOwner, zk_lease
from distlock.fencing import token_of
from distlock.lease.hold import _kept, known
from distlock.session.lease_clock import stamp
from distlock.session.registry import session_for
from distlock.session.session import Session
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, forgets_all
from tests.lease.tools import LONG, SHORT, await_end, node_path, owner_of, said

pytestmark = pytest.mark.usefixtures("tree")

Told = list[tuple[str, dict[str, Any]]]


# --- owners --------------------------------------------------------------------------------------


def test_another_owner_does_not_get_it_and_the_same_one_renews(tree: Tree) -> None:
    mine, theirs = zk_lease("key", LONG, owner="me"), zk_lease("key", LONG, owner="you")
    assert mine.acquire()
    assert not theirs.acquire(timeout=0)
    assert not theirs.acquire(blocking=False)
    version = tree.client.exists(node_path(tree, "key")).version
    assert mine.acquire(timeout=0)
    assert tree.client.exists(node_path(tree, "key")).version == version + 1
    assert owner_of(tree, "key") == "me"


def test_whoever_knows_the_owner_id_renews_with_the_same_token_and_releases(tree: Tree) -> None:
    here, elsewhere = (zk_lease("key", LONG, owner="me", using=one) for one in ("default", "other"))
    assert here.acquire()
    token = here.renew().token
    assert elsewhere.renew().token == token
    assert elsewhere.acquire()
    assert elsewhere.renew().token == token
    assert here.renew().token == token
    elsewhere.release()
    assert said(tree, "key") is None
    with pytest.raises(LockLost, match="it is free"):
        here.renew()


def test_one_release_ends_it_however_often_it_was_acquired_and_a_second_is_refused(
    tree: Tree,
) -> None:
    lease = zk_lease("key", LONG, owner="me")
    assert lease.acquire()
    assert lease.acquire()
    lease.release()
    assert said(tree, "key") is None
    assert not lease.held
    with pytest.raises(NotOwner, match="it is free"):
        lease.release()


# --- tokens --------------------------------------------------------------------------------------


def test_tokens_rise_over_release_removed_parents_and_expiry(tree: Tree) -> None:
    tokens = []
    with zk_lease("key", LONG) as hold:
        tokens.append(hold.token)
    eventually(lambda: not tree.client.exists(tree.namespace), PATIENCE)
    for owner in "abcab":
        lease = zk_lease("key", SHORT, owner=owner)
        assert lease.acquire()
        tokens.append(lease.renew().token)
    assert tokens == sorted(set(tokens))


def test_a_hold_fences_as_that_of_a_mutex_does(tree: Tree) -> None:
    with zk_lease("key", LONG) as hold:
        assert isinstance(hold, Hold)
        assert token_of(hold) == hold.token == tree.client.exists(hold.path).mzxid


# --- renewing ------------------------------------------------------------------------------------


def test_a_renewal_begins_the_time_anew(tree: Tree) -> None:
    lease = zk_lease("key", LONG, owner="me")
    assert lease.acquire()
    hold = lease.renew(timedelta(seconds=30))
    assert 0 < hold.valid_for() < 30
    left = hold.expires - datetime.now(timezone.utc)
    assert timedelta(0) < left <= timedelta(seconds=31)  # server and test share a clock
    assert lease.renew(LONG) is hold
    assert 30 < hold.valid_for() < LONG
    assert said(tree, "key") == {**(said(tree, "key") or {}), "ttl": LONG, "token": hold.token}


def test_only_an_explicit_time_shortens() -> None:
    assert zk_lease("key", LONG, owner="me").acquire()
    shorter = zk_lease("key", 5, owner="me")
    assert shorter.acquire()
    assert shorter.renew().valid_for() > 5
    with shorter as hold:
        assert hold.valid_for() > 5
        assert shorter.renew(4).valid_for() < 4


def test_a_late_renewal_succeeds_while_nobody_else_has_had_it() -> None:
    lease = zk_lease("key", SHORT, owner="me")
    with lease as hold:
        eventually(lambda: hold.lost, PATIENCE)
        assert hold.valid_for() == 0
        with pytest.raises(LockLost, match=r"call renew\(\)"):
            hold.check()
        assert lease.renew(LONG) is hold
        hold.check()
        hold.verify(timeout=PATIENCE)


def test_a_renewal_after_somebody_else_had_it_says_who(tree: Tree, told: Told) -> None:
    mine = zk_lease("key", SHORT, owner="me")
    assert mine.acquire()
    hold = mine.renew()
    assert zk_lease("key", LONG, owner="you").acquire()
    with pytest.raises(LockLost, match="it is held by you") as lost:
        mine.renew()
    assert lost.value.hold is hold
    assert [facts["hold"] for name, facts in told if name == "lost"] == [hold]
    assert owner_of(tree, "key") == "you"


def test_what_was_released_and_taken_since_is_not_mistaken_for_the_lease_that_is_known(
    tree: Tree,
) -> None:
    """Versions begin anew with each node: the known one is the new owner's, too."""
    mine = zk_lease("key", LONG, owner="me")
    for late in (mine.renew, mine.release):
        assert mine.acquire()
        version = tree.client.exists(node_path(tree, "key")).version
        zk_lease("key", LONG, owner="me", using="other").release()
        yours = zk_lease("key", LONG, owner="you", using="other")
        assert yours.acquire()
        assert tree.client.exists(node_path(tree, "key")).version == version
        with pytest.raises((LockLost, NotOwner), match="it is held by you"):
            late()
        assert owner_of(tree, "key") == "you"
        yours.release()


# --- waiting -------------------------------------------------------------------------------------


def test_a_waiter_is_woken_by_the_release(tree: Tree, make_owner: MakeOwner) -> None:
    mine, yours = zk_lease("key", LONG, owner="me"), zk_lease("key", LONG, owner="you")
    assert mine.acquire()
    waiting = make_owner().submit(yours.acquire)
    tree.await_watches(node_path(tree, "key"))
    mine.release()
    assert waiting.result(PATIENCE)
    assert owner_of(tree, "key") == "you"
    tree.await_watches()
    forgets_all(session_for())


def test_busy_says_who_has_it_and_until_when() -> None:
    assert zk_lease("key", LONG, owner="user:42").acquire()
    with pytest.raises(LockBusy, match=r"held by user:42 \(.+\) until .+ UTC") as busy:
        zk_lease("key", LONG, timeout=0.1).__enter__()
    assert busy.value.key == "key"
    assert busy.value.holder == zk_lease("key", LONG).holder()
    assert busy.value.holder is not None
    assert busy.value.holder.owner_id == "user:42"


# --- async ---------------------------------------------------------------------------------------


def test_tasks_take_renew_and_release(tree: Tree) -> None:
    async def use() -> None:
        lease = zk_lease("key", LONG, owner="me")
        assert await lease.aacquire()
        assert (await lease.arenew()).owner == "me"
        await lease.arelease()
        async with zk_lease("key", LONG) as hold:
            assert hold.owner == owner_of(tree, "key")
            with pytest.raises(LockBusy):
                async with zk_lease("key", LONG, owner="you", timeout=0):
                    pass
        assert said(tree, "key") is None
        with pytest.raises(LockLost):
            await lease.arenew()
        with pytest.raises(NotOwner):
            await lease.arelease()

    asyncio.run(use())


def test_waiting_tasks_cost_no_threads_and_all_get_their_turn(tree: Tree) -> None:
    async def wait(lease: Any) -> None:
        async with lease as hold:
            turns.append(hold.token)

    async def use() -> None:
        tasks = [
            asyncio.create_task(wait(zk_lease("key", LONG, timeout=2 * PATIENCE)))
            for _ in range(30)
        ]
        path = node_path(tree, "key")
        await asyncio.to_thread(
            eventually,
            lambda: len(session_for().watches.watchers.get((path, False), ())) == 30,
            PATIENCE,
        )
        assert threading.active_count() <= before + 3  # the timer, the heartbeat, and this look
        await first.arelease()
        await asyncio.wait_for(asyncio.gather(*tasks), 2 * PATIENCE)

    turns: list[int] = []
    first = zk_lease("key", LONG, owner="first")
    assert first.acquire()
    before = threading.active_count()
    asyncio.run(use())
    assert len(turns) == 30
    assert turns == sorted(set(turns))


def test_a_waiter_that_leaves_while_its_watch_is_about_to_be_sent_leaves_none_behind(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Session.send

    def leave_and_send(session: Session, request: Any, done: Any, **options: Any) -> None:
        if getattr(request, "watcher", None) and not operation.left:
            caller = threading.Thread(target=operation.leave)
            caller.start()
            caller.join(PATIENCE)
        send(session, request, done, **options)

    assert zk_lease("key", LONG, owner="me").acquire()
    session = await_connection()
    lease = zk_lease("key", LONG, owner="you")
    operation = lease._operation(lease._identity(), None, LONG)
    monkeypatch.setattr(Session, "send", leave_and_send)
    steps = operation.steps(operation.acquire(LONG), lambda: None)
    eventually(lambda: next(steps) and operation.left, PATIENCE)
    forgets_all(session)
    tree.await_watches()


# --- what is told and kept -----------------------------------------------------------------------


def test_signals_tell_of_what_this_process_takes_and_releases(told: Told) -> None:
    with zk_lease("key", LONG) as hold, zk_lease("key", LONG):
        pass
    assert [name for name, _ in told] == ["acquired", "released"]
    assert all(facts["hold"] is hold and facts["key"] == "key" for _, facts in told)


def test_a_release_elsewhere_is_no_loss(tree: Tree, told: Told) -> None:
    here, elsewhere = (zk_lease("key", LONG, owner="me", using=one) for one in ("default", "other"))
    for again in (here.acquire, here.release):
        assert here.acquire()
        elsewhere.renew()
        elsewhere.release()
        with suppress(NotOwner):
            again()
    assert owner_of(tree, "key") is None
    assert "lost" not in [name for name, _ in told]


def test_the_node_says_no_more_than_it_should(tree: Tree, two_sessions: Settings) -> None:
    lease = zk_lease("key", LONG, owner="me")
    assert lease.acquire()
    full = said(tree, "key") or {}
    assert full["label"] == ""
    assert full["pid"]
    lease.renew()
    assert (said(tree, "key") or {})["since"] == full["since"]
    two_sessions.DISTLOCK = {
        **two_sessions.DISTLOCK,
        "default": {**two_sessions.DISTLOCK["default"], "NODE_DATA": "owner"},
    }
    assert lease.acquire()
    facts = {"v", "owner", "ttl", "attempt", "token", "mark", *stamp()}
    assert set(said(tree, "key") or ()) == facts


def test_what_a_process_knows_does_not_grow_with_leases_that_end_elsewhere() -> None:
    for number in range(50):
        assert zk_lease(f"key-{number}", 0.01, owner="me").acquire()
    last = zk_lease("key-49", 0.01)
    await_end(last)
    for number in range(30):
        assert zk_lease(f"another-{number}", LONG, owner="me").acquire()
    assert len(_kept) <= 30 + 5
    assert len(known) <= 30 + 5
    assert zk_lease("another-0", LONG, owner="me").held


def test_a_hold_notices_when_it_asks_that_an_operator_broke_the_lease(
    tree: Tree, told: Told
) -> None:
    with pytest.raises(LockLost), zk_lease("key", LONG) as hold:  # noqa: PT012
        tree.client.delete(hold.path, recursive=True)
        hold.check()
        with pytest.raises(LockLost):
            hold.verify(timeout=PATIENCE)
        assert hold.lost
    assert [name for name, _ in told] == ["acquired", "lost"]
