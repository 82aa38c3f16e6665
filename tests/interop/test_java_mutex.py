"""Real Apache Curator on the other side: ``InterProcessMutex`` (promise 10).

What Java's threads and ours may do with one lock is the same in both directions: hold, wait, look,
die.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distlock import LockBusy, LockLost, zk_lock
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.interop.tools import KEY, InJava, JavaError, JavaPeer, Language, NewContender
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, expire


def test_waiters_of_both_languages_are_granted_in_the_order_of_arrival(
    contender: NewContender, tree: Tree
) -> None:
    """Python's waiters have two sessions, so that they hand over locally and over the server."""
    languages: list[Language] = ["Java", "Python", "Python", "Java", "Java", "Python", "Python"]
    line = [contender(language) for language in languages]
    granted = []
    for number, one in enumerate(line, start=1):
        granted.append(one.ask())
        tree.await_line(KEY, number)
    for turn, one in enumerate(line):
        assert granted[turn].result(PATIENCE)
        assert not any(later.done() for later in granted[turn + 1 :])
        tree.await_line(KEY, len(line) - turn)
        one.release()


def test_java_waits_for_the_end_of_hold_at_least(contender: NewContender, tree: Tree) -> None:
    java, began = contender("Java"), time.monotonic()
    with zk_lock(KEY, hold_at_least=2):
        granted = java.ask()
        tree.await_line(KEY, 3)
    assert granted.result(PATIENCE)
    assert time.monotonic() - began >= 2
    java.release()


def test_a_java_waiter_interrupted_in_the_middle_of_the_line_lets_nobody_in(
    contender: NewContender, tree: Tree
) -> None:
    """Who comes after it looks again, and goes on waiting."""
    holder, middle, last = contender("Java"), contender("Java"), contender("Python")
    assert isinstance(middle, InJava)
    assert holder.acquire()
    interrupted = middle.ask()
    tree.await_line(KEY, 2)
    granted = last.ask()
    head, _, tail = tree.await_line(KEY, 3)
    middle.interrupt()
    with pytest.raises(JavaError, match="InterruptedException"):
        interrupted.result(PATIENCE)
    eventually(lambda: tree.line(KEY) == [head, tail], PATIENCE)
    # It watches the holder now: it has looked again, and was not granted.
    tree.await_watches(f"{tree.path(KEY)}/{head}")
    assert not granted.done()
    holder.release()
    assert granted.result(PATIENCE)
    last.release()


def test_a_lock_of_ours_that_does_not_queue_excludes_java_and_is_excluded(
    contender: NewContender, tree: Tree
) -> None:
    java, python = contender("Java"), contender("Python")
    assert java.acquire()
    (head,) = java.participants()
    assert not python.acquire("unfair", timeout=0)
    granted = python.ask("unfair")
    tree.await_watches(f"{tree.path(KEY)}/{head}")
    assert not granted.done()
    java.release()
    assert granted.result(PATIENCE)
    assert not java.acquire(timeout=0)
    python.release("unfair")


# --- looking -------------------------------------------------------------------------------------


def test_each_language_sees_the_participants_of_both_in_the_same_order(
    contender: NewContender, tree: Tree
) -> None:
    languages: list[Language] = ["Java", "Python", "Java", "Python"]
    line = [contender(language) for language in languages]
    granted = []
    for number, one in enumerate(line, start=1):
        granted.append(one.ask())
        names = tree.await_line(KEY, number)
    assert line[0].participants() == line[1].participants() == names
    seen = zk_lock(KEY).participants()
    assert [one.peer for one in seen] == [True, False, True, False]
    assert [one.token for one in seen] == sorted(one.token for one in seen)
    assert zk_lock(KEY).holder() == seen[0]
    for one, grant in zip(line, granted, strict=True):
        assert grant.result(PATIENCE)
        one.release()


# What Curator's users put into a node; by default it is their address.
@pytest.mark.parametrize("data", ["binary", "invalid-utf8", "half-an-object", "megabyte"])
def test_a_curator_peer_with_unreadable_data_is_told_as_a_peer(
    contender: NewContender, tree: Tree, data: str
) -> None:
    peer, waiter = contender("Java"), contender("Python")
    recipe = f"mutex-with-data={data}"
    assert peer.acquire(recipe)
    path = f"{tree.path(KEY)}/{peer.participants(recipe)[0]}"
    if data == "megabyte":
        assert tree.client.exists(path).dataLength == 1_000_000
    granted = waiter.ask()
    tree.await_line(KEY, 2)
    lock = zk_lock(KEY, timeout=0)
    holder = lock.holder()
    assert holder is not None
    assert (holder.peer, holder.path, holder.host, holder.pid) == (True, path, "", None)
    assert [one.peer for one in lock.participants()] == [True, False]
    assert lock.locked()
    with pytest.raises(LockBusy, match="held by a peer with node _c_") as busy, lock:
        pass
    assert busy.value.holder == holder
    peer.release(recipe)
    assert granted.result(PATIENCE)
    waiter.release()


# --- those who go without a word -----------------------------------------------------------------


def test_a_killed_java_holder_frees_the_lock_when_its_session_ends(
    java_command: list[str], zookeeper: ZooKeeper, tree: Tree, make_owner: MakeOwner, tmp_path: Path
) -> None:
    doomed = JavaPeer(java_command, zookeeper.hosts, folder=tmp_path, session_timeout=2)
    try:
        assert doomed.do("holder", "acquire", "mutex", tree.path(KEY), PATIENCE) == "got"
        waiter = make_owner()
        granted = waiter.submit(zk_lock(KEY).acquire, timeout=PATIENCE)
        tree.await_line(KEY, 2)
        assert not granted.done()
    finally:
        doomed.kill()
    assert granted.result(PATIENCE)
    waiter.now(zk_lock(KEY).release)


def test_a_session_of_ours_that_expires_lets_java_in_and_tells_our_holder(
    contender: NewContender, tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    holder, lock = make_owner(), zk_lock(KEY)
    hold = holder.now(lock.__enter__)
    waiter = contender("Java")
    granted = waiter.ask()
    tree.await_line(KEY, 2)
    expire(zookeeper.hosts, session_for())
    assert granted.result(PATIENCE)
    eventually(lambda: hold.lost, PATIENCE, "a lost hold")
    with pytest.raises(LockLost):
        holder.now(lock.release)
    assert not lock.acquire(timeout=0)
    waiter.release()
