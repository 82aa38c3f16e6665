"""Cuts of a link, whoever is on it: shorter and longer than the lease, or in a session kept.

Curator's holder goes on "holding" after the expiry (CURATOR-206), kazoo's has no local deadline,
and a cut of 2 s cost it its session. A loss is for good: somebody may have acted on it already.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from distlock import LockLost, LockUnavailable, zk_lock
from distlock.engine import deadline
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.losses import AHEAD_OF_RIVAL, Loss, SetOptions, await_waiter, beneficiaries, noted
from tests.kit.stopwatch import Stopwatch
from tests.kit.tools import (
    OVERRUN,
    PATIENCE,
    MakeOwner,
    Owner,
    Tree,
    await_connection,
    expire,
    forgets_all,
    within,
)

KEY = "key"
T = 4.0

pytestmark = pytest.mark.usefixtures("tree")

Shift = Callable[[float], None]


def test_a_cut_longer_than_the_lease_is_told_before_the_rival_has_the_lock(
    tree: Tree,
    broken_link: TcpProxy,
    set_options: SetOptions,
    losses: list[Loss],
    make_owner: MakeOwner,
) -> None:
    set_options(SESSION_TIMEOUT=6)  # the rival comes two seconds after the loss
    await_connection()
    rival, rivals = make_owner(), zk_lock(KEY, using="other")
    with pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
        rivals_turn = noted(rival.submit(rivals.acquire, timeout=PATIENCE))
        tree.await_line(KEY, 2)
        broken_link.cut()
        eventually(lambda: hold.lost, PATIENCE)
        taken_at = rivals_turn()
    (loss,) = losses
    assert taken_at - loss.at > AHEAD_OF_RIVAL
    broken_link.pass_through()
    await_connection()
    assert hold.lost
    assert len(tree.await_line(KEY, 1)) == 1
    rival.now(rivals.release)
    with zk_lock(KEY) as another:
        another.verify()


def test_a_hold_lost_in_a_cut_stays_lost_in_a_session_that_the_server_kept(
    tree: Tree,
    broken_link: TcpProxy,
    set_options: SetOptions,
    shift_clock: Shift,
    losses: list[Loss],
) -> None:
    set_options(SESSION_TIMEOUT=20)  # the server keeps it for longer than the cut can last
    await_connection()
    lock = zk_lock(KEY)
    lock.acquire()
    session_id = session_for().id
    broken_link.cut()
    eventually(lambda: not session_for().connected)
    assert not losses
    shift_clock(20 * 2 / 3)  # the end of the lease, at once
    (loss,) = eventually(lambda: losses, PATIENCE)
    broken_link.pass_through()
    await_connection()
    assert session_for().id == session_id
    assert len(tree.line(KEY)) == 1  # the server knows nothing of a loss
    eventually(lambda: session_for().deadline.remaining > 0)
    assert loss.hold.lost
    with pytest.raises(LockLost):
        loss.hold.check()
    with pytest.raises(LockLost):
        lock.release()
    tree.await_line(KEY, 0)
    assert session_for().id == session_id  # deleted, and not gone with its session
    assert lock.acquire()
    lock.release()
    assert len(losses) == 1
    forgets_all(session_for())


def test_a_loss_that_nobody_looked_at_is_for_good(tree: Tree, shift_clock: Shift) -> None:
    session = await_connection()
    with pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
        epoch = session.deadline.epoch
        shift_clock(T * 0.8)  # a stop of the machine
        session.deadline.renew(deadline.now(), T)  # and a heartbeat, before anybody asked
        assert session.deadline.remaining > 0
        assert session.deadline.epoch == epoch + 1
        assert hold.lost
    assert session_for() is session
    tree.await_line(KEY, 0)


def test_a_task_is_told_too(tree: Tree, zookeeper: ZooKeeper, losses: list[Loss]) -> None:
    async def lose_it(error: Exception | None) -> None:
        async with zk_lock(KEY) as hold:
            await asyncio.to_thread(expire, zookeeper.hosts, session_for())
            await asyncio.to_thread(eventually, lambda: hold.lost)
            if error is not None:
                raise error

    with pytest.raises(LockLost):
        asyncio.run(lose_it(None))
    with pytest.raises(KeyError):
        asyncio.run(lose_it(KeyError("the body's")))
    assert [loss.key for loss in losses] == [KEY, KEY]
    tree.await_line(KEY, 0)


def test_a_lost_hold_is_not_entered_again_and_ends_at_its_last_release(
    tree: Tree, zookeeper: ZooKeeper, losses: list[Loss]
) -> None:
    lock = zk_lock(KEY)
    assert lock.acquire()
    assert lock.acquire()
    expire(zookeeper.hosts, session_for())
    (loss,) = eventually(lambda: losses)
    with pytest.raises(LockLost) as raised:
        lock.acquire()
    assert raised.value.hold is loss.hold
    with pytest.raises(LockLost), lock:
        pass
    assert lock.held
    lock.release()
    with pytest.raises(LockLost):
        lock.release()
    assert not zk_lock(KEY).held
    with lock as another:
        another.verify()
    tree.await_line(KEY, 0)
    assert len(losses) == 1


def test_the_inner_block_of_a_lost_hold_raises_no_masking_error(zookeeper: ZooKeeper) -> None:
    steps = []
    with pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
        with zk_lock(KEY):
            expire(zookeeper.hosts, session_for())
            eventually(lambda: hold.lost)
        steps.append("the outer block goes on to its end")
    assert steps


# --- a link that swallows everything -------------------------------------------------------------
# Every request postpones kazoo's ping, so kazoo stays CONNECTED for ever on such a link. The
# deadline counts from the last proof, not from the moment when the silence is noticed
# (CURATOR-460).


@contextmanager
def traffic() -> Iterator[list[float]]:
    """Another thread reads over the session all the time; yields when its reads were sent."""
    session, done, sent = session_for(), threading.Event(), []

    def read() -> None:
        while not done.wait(0.02):
            if session.connected:
                sent.append(time.monotonic())
                session.read("/zookeeper", lambda *_: None)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield sent
    finally:
        done.set()
        thread.join()


def test_the_silent_connection_is_dropped_and_recovers_by_itself(
    tree: Tree, broken_link: TcpProxy, set_options: SetOptions, losses: list[Loss]
) -> None:
    set_options(SESSION_TIMEOUT=15)  # a sixth of it is left: for the way back, and a busy machine
    session = await_connection()
    with traffic(), zk_lock(KEY) as hold:
        broken_link.black_hole()
        eventually(lambda: not session.connected, PATIENCE)
        broken_link.pass_through()
        eventually(lambda: session.connected, PATIENCE)
        hold.check()  # dropped early enough to reach another server in time
        hold.verify()
    assert not losses
    with zk_lock(KEY, timeout=PATIENCE):
        assert len(tree.await_line(KEY, 1)) == 1
    forgets_all(session)


def test_a_loss_is_told_to_each_holder_and_to_no_waiter(
    tree: Tree, broken_link: TcpProxy, losses: list[Loss], make_owner: MakeOwner
) -> None:
    await_connection()
    holders, keys = [make_owner() for _ in range(3)], ["a", "b", "c"]
    for one, key in zip(holders, keys, strict=True):
        one.now(zk_lock(key).acquire)
    waiter = make_owner()
    granted = waiter.submit(zk_lock("a").acquire, timeout=PATIENCE * 2)
    await_waiter(tree, "a")
    broken_link.black_hole()
    eventually(lambda: len(losses) == 3, PATIENCE)
    assert sorted(loss.key for loss in losses) == keys
    broken_link.pass_through()
    for one, key in zip(holders, keys, strict=True):
        with pytest.raises(LockLost):
            one.now(zk_lock(key).release)
    assert granted.result(PATIENCE)
    assert len(losses) == 3
    waiter.now(zk_lock("a").release)


# --- waiters -------------------------------------------------------------------------------------
# No grant on an earlier session's node (CURATOR-604); watches are forgotten at a disconnect; a new


def test_a_new_session_goes_to_the_end_of_the_line_within_the_same_time(
    tree: Tree, zookeeper: ZooKeeper, holder: Owner, make_owner: MakeOwner
) -> None:
    first, second, holders = make_owner(), make_owner(), zk_lock(KEY, using="other")
    with within(6 + OVERRUN):
        firsts = first.submit(zk_lock(KEY).acquire, timeout=6)
        line = tree.await_line(KEY, 2)
        seconds = second.submit(zk_lock(KEY, using="other").acquire, timeout=PATIENCE)
        *_, seconds_node = tree.await_line(KEY, 3)
        expire(zookeeper.hosts, session_for())
        eventually(lambda: len(new := tree.line(KEY)) == 3 and new[1] == seconds_node)
        assert tree.line(KEY)[0] == line[0]
        assert not firsts.done()
        holder.now(holders.release)
        assert seconds.result(PATIENCE)
        assert firsts.result(PATIENCE) is False
    second.now(zk_lock(KEY, using="other").release)
    assert beneficiaries(session_for()) == 0


@pytest.mark.parametrize("fault", ["cut", "black_hole"])
def test_a_waiter_whose_time_ends_in_an_outage_is_told_so_at_its_deadline(
    tree: Tree, broken_link: TcpProxy, holder: Owner, make_owner: MakeOwner, fault: str
) -> None:
    waiter, session = make_owner(), await_connection()
    with Stopwatch() as watch:
        granted = waiter.submit(zk_lock(KEY).acquire, timeout=4)
        await_waiter(tree, KEY)
        getattr(broken_link, fault)()
        try:
            assert granted.result(PATIENCE) is False
            assert fault == "black_hole"  # of which nobody may know yet
        except LockUnavailable:
            pass
    assert watch.elapsed > 3.9
    assert watch.taken < 4 + OVERRUN
    assert beneficiaries(session) == 0
    broken_link.pass_through()
    tree.await_line(KEY, 1)
    assert holder.now(lambda: zk_lock(KEY, using="other").held)
    forgets_all(session)
