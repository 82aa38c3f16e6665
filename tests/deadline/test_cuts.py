"""Cuts of a link, whoever is on it: shorter and longer than the lease, or in a session kept.

Curator's holder goes on "holding" after the expiry (CURATOR-206), kazoo's has no local deadline,
and a cut of 2 s cost it its session. A loss is for good: somebody may have acted on it already.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from distlock import LockLost, zk_lock
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.losses import AHEAD_OF_RIVAL, Loss, SetOptions, noted
from tests.kit.tools import (
    PATIENCE,
    MakeOwner,
    Tree,
    await_connection,
    expire,
    forgets_all,
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


# --- waiters -------------------------------------------------------------------------------------
# No grant on an earlier session's node (CURATOR-604); watches are forgotten at a disconnect; a new
