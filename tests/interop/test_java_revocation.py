"""Real Apache Curator on the other side: ``Revoker`` and ``Revocable``, in both directions."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from distlock import Mutex, revoke, zk_lock
from tests.interop.tools import KEY, InJava, JavaPeer, NewContender
from tests.kit.tools import PATIENCE, MakeOwner, Tree

pytestmark = pytest.mark.deep


def test_java_is_told_that_python_asks_for_its_lock(contender: NewContender, tree: Tree) -> None:
    holder, waiter = contender("Java"), contender("Python")
    assert isinstance(holder, InJava)
    holder.make_revocable()
    assert holder.acquire()
    granted = waiter.ask()
    tree.await_line(KEY, 2)
    theirs = zk_lock(KEY).holder()
    assert theirs is not None
    assert revoke(theirs)
    holder.await_revocation()
    assert not granted.done()  # cooperative: Java decides when
    holder.release()
    assert granted.result(PATIENCE)
    waiter.release()


@pytest.mark.parametrize("while_waiting", [False, True], ids=["holder", "waiter"])
def test_python_is_told_that_java_asks(
    java: JavaPeer,
    contender: NewContender,
    tree: Tree,
    make_owner: MakeOwner,
    while_waiting: bool,
) -> None:
    asked: Future[Mutex] = Future()
    lock, owner, rival = zk_lock(KEY, on_revoke=asked.set_result), make_owner(), contender("Java")
    if while_waiting:
        assert rival.acquire()
    granted = owner.submit(lock.acquire, timeout=PATIENCE)
    *_, ours = tree.await_line(KEY, 1 + while_waiting)
    assert while_waiting or granted.result(PATIENCE)
    java.do("revokes", "revoke", f"{tree.path(KEY)}/{ours}")
    assert asked.result(PATIENCE) is lock
    assert tree.line(KEY)[-1] == ours
    if while_waiting:
        rival.release()
    assert granted.result(PATIENCE)
    owner.now(lock.release)
