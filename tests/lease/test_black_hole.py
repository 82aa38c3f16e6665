"""A link that swallows everything, while other threads go on using it.

PITFALLS 25a (every request postpones kazoo's ping, so kazoo stays CONNECTED for ever on such a
link), 20 (CURATOR-460: the deadline counts from the last proof, not from the moment when the
silence is noticed).
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from distlock import LockLost, zk_lock
from distlock.session import session_for
from tests.helpers import eventually
from tests.lease.tools import AHEAD_OF_RIVAL, Loss, await_waiter, noted
from tests.mutex.tools import PATIENCE, MakeOwner, Tree, await_connection, forgets_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.testing.proxy import TcpProxy

KEY = "key"
T = 4.0

pytestmark = pytest.mark.usefixtures("tree")


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


@pytest.mark.parametrize("direction", ["both", "to_client"])
def test_the_hold_is_lost_before_the_rival_has_the_lock(
    tree: Tree,
    broken_link: TcpProxy,
    losses: list[Loss],
    make_owner: MakeOwner,
    direction: str,
) -> None:
    rival, rivals, session = make_owner(), zk_lock(KEY, using="other"), await_connection()
    deadline = 0.0
    with traffic() as sent, pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
        rivals_turn = noted(rival.submit(rivals.acquire, timeout=PATIENCE))
        tree.await_line(KEY, 2)
        broken_link.black_hole("to_client" if direction == "to_client" else "both")
        silent_since = time.monotonic()
        looked_at = time.monotonic()
        while remaining := hold.valid_for():
            deadline = max(deadline, looked_at + remaining)  # never later than it is
            if not session.connected:
                dropped_at = time.monotonic()
                broken_link.black_hole("both")  # the next connection is to fare no better
                eventually(lambda: hold.lost, T)
            looked_at = time.monotonic()
        assert hold.lost
        (loss,) = eventually(lambda: losses, 1)
        assert dropped_at - silent_since < T * 2 / 3
        assert any(at > silent_since for at in sent)  # else it proves less than it says
        taken_at = rivals_turn()
    assert loss.hold is hold
    assert loss.key == KEY
    assert loss.thread == "distlock-default-heartbeat"
    assert 0 <= loss.at - deadline < 0.4
    assert taken_at - loss.at > AHEAD_OF_RIVAL
    assert len(losses) == 1
    rival.now(rivals.release)


def test_the_silent_connection_is_dropped_and_recovers_by_itself(
    tree: Tree, broken_link: TcpProxy, losses: list[Loss]
) -> None:
    session = await_connection()
    with traffic(), zk_lock(KEY) as hold:
        broken_link.black_hole()
        eventually(lambda: not session.connected, T * 2 / 3)
        broken_link.pass_through()
        eventually(lambda: session.connected, T)
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
    eventually(lambda: len(losses) == 3, T)
    assert sorted(loss.key for loss in losses) == keys
    broken_link.pass_through()
    for one, key in zip(holders, keys, strict=True):
        with pytest.raises(LockLost):
            one.now(zk_lock(key).release)
    assert granted.result(PATIENCE)
    assert len(losses) == 3
    waiter.now(zk_lock("a").release)
