"""The thread that releases a lock hands it to the neighbour behind it, without the connection's.

The connection thread is stopped while it does so: what happens meanwhile comes to it later, in any
order that `tests.queue.explore` goes through.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from distlock import LockLost, zk_lock
from distlock.session.registry import session_for
from tests.contenders.tools import KEY, Waiter
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries
from tests.kit.tools import PATIENCE, forgets_all, inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock_chaos.proxy import TcpProxy
    from tests.kit.tools import MakeOwner, Tree


# No heartbeat comes in between: what meets another send has to wait for the connection thread.
pytestmark = pytest.mark.usefixtures("patient", "tree")


@contextmanager
def connection_thread_stopped() -> Iterator[None]:
    """Keep the connection thread from doing anything."""
    stopped, on = threading.Event(), threading.Event()

    def stop() -> None:
        stopped.set()
        assert on.wait(PATIENCE)

    session = session_for()
    session.soon(stop)
    assert stopped.wait(PATIENCE)
    # One whose request was answered may not have come back from sending it.
    wire: Any = inside(session)._connection.wire
    eventually(lambda: not wire.lock.locked(), PATIENCE, "nobody who sends")
    try:
        yield
    finally:
        on.set()


def nothing_is_left(tree: Tree) -> None:
    tree.await_line(KEY, 0)
    tree.await_watches()
    session = session_for()
    eventually(lambda: not session.contenders, PATIENCE, "no contenders")
    eventually(lambda: not session.local_nodes, PATIENCE, "no local nodes")
    assert beneficiaries(session) == 0
    forgets_all(session)


def test_one_after_the_other_has_the_lock(tree: Tree, make_owner: MakeOwner) -> None:
    lock = zk_lock(KEY)
    assert lock.acquire()
    waiters = [Waiter(tree, make_owner) for _ in range(3)]
    with connection_thread_stopped():
        lock.release()
        for waiter in waiters[:2]:
            waiter.release()
        assert waiters[2].granted.result(PATIENCE)
        tree.await_line(KEY, 1)  # the server knows it, too
    assert waiters[2].token
    waiters[2].release()
    nothing_is_left(tree)


def test_who_has_the_lock_keeps_it_over_a_new_connection(
    tree: Tree, make_owner: MakeOwner, broken_link: TcpProxy
) -> None:
    lock = zk_lock(KEY)
    assert lock.acquire()
    waiter, last = (Waiter(tree, make_owner) for _ in range(2))
    connection = session_for().connection
    with connection_thread_stopped():
        lock.release()
        assert waiter.granted.result(PATIENCE)
        broken_link.drop()
    eventually(lambda: session_for().connection >= connection + 2, PATIENCE, "a new connection")
    assert waiter.owner.now(lambda: waiter.lock.held)
    assert not last.granted.done()
    assert len(tree.await_line(KEY, 2)) == 2
    waiter.release()
    last.release()
    nothing_is_left(tree)


def test_what_is_lost_is_not_handed_over(tree: Tree, make_owner: MakeOwner) -> None:
    lock = zk_lock(KEY)
    assert lock.acquire()
    waiter = Waiter(tree, make_owner)
    session = session_for()
    with connection_thread_stopped():
        session.deadline.end()
        with pytest.raises(LockLost):
            lock.release()
        assert not waiter.granted.done()
    assert waiter.token  # it has proven the session
    waiter.release()
    nothing_is_left(tree)
