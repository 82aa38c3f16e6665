"""A link that swallows everything, while other threads go on using it.

Every request postpones kazoo's ping, so kazoo stays CONNECTED for ever on such a link. The deadline
counts from the last proof, not from the moment when the silence is noticed (CURATOR-460).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from distlock import LockLost, zk_lock
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually
from tests.kit.losses import Loss, SetOptions, await_waiter
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, forgets_all

KEY = "key"

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
