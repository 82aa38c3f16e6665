"""A writer that reads goes on reading when it writes no more, and nobody writes in between.

In CURATOR-621 the downgrade lets a queued writer in. A downgraded read keeps the token of its
write.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress

import pytest
from kazoo.exceptions import NoNodeError
from pytest_django import Settings

from distlock import Hold, LockLost, Mutex, zk_rwlock
from distlock.owner.owner import current
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, expire

pytestmark = pytest.mark.usefixtures("tree")

WRITE, READ = "__WRIT__", "__READ__"


def queue_up(owner: Owner, tree: Tree, lock: Mutex, place: int = 2) -> Future[bool]:
    """Let an owner wait at the end of the line, as number `place`."""
    granted = owner.submit(lock.acquire, timeout=PATIENCE)
    tree.await_line("key", place)
    return granted


def test_the_reader_stands_in_the_spot_of_the_writer_that_it_was(tree: Tree) -> None:
    lock = zk_rwlock("key")
    with lock.write as write, lock.read as read:
        sequence = write.path.rpartition(WRITE)[2]
        assert read.path.rpartition(READ)[2] == sequence
        stat = tree.client.get(read.path)[1]
        assert stat.ephemeralOwner == session_for().id


@pytest.mark.parametrize("using", ["default", "other"])
def test_a_queued_writer_stays_out_until_the_reader_has_gone_too(
    tree: Tree, make_owner: MakeOwner, using: str
) -> None:
    lock, rival, writer = zk_rwlock("key"), zk_rwlock("key", using=using), make_owner()
    for _ in range(3):
        lock.write.acquire()
        writes = queue_up(writer, tree, rival.write)
        assert lock.read.acquire(timeout=0)
        lock.write.release()
        tree.await_line("key", 2)
        newcomer = make_owner()
        assert not newcomer.now(rival.write.acquire, timeout=0)
        assert not writes.done()
        (holder,) = lock.read.participants()
        assert holder.path.rpartition("/")[2] == tree.line("key")[0]
        lock.read.release()
        assert writes.result(PATIENCE)
        writer.now(rival.write.release)
        tree.await_line("key", 0)


def test_the_reader_may_be_released_first_and_the_writer_stays(
    tree: Tree, make_owner: MakeOwner
) -> None:
    lock, other = zk_rwlock("key"), make_owner()
    with lock.write:
        with lock.read:
            pass
        tree.await_line("key", 1)
        assert lock.write.held
        assert not other.now(lock.read.acquire, timeout=0)
    tree.await_line("key", 0)


def test_the_token_of_the_writer_is_kept_and_it_is_no_shared_hold(make_owner: MakeOwner) -> None:
    lock, reader = zk_rwlock("key"), make_owner()
    with lock.read as plain:
        assert plain.shared
    lock.write.acquire()
    with lock.read as read:
        token = held(lock.write).token
        assert (read.token, read.shared) == (token, False)
        lock.write.release()
        assert (read.token, read.shared) == (token, False)
        assert reader.now(lock.read.acquire)
        other = reader.now(held, lock.read)
        assert other.shared
        assert other.token > token
        reader.now(lock.read.release)
        read.check()
        read.verify()
    with lock.write as following:
        assert following.token > token


def held(lock: Mutex) -> Hold:
    """The hold that this owner has of a lock."""
    return current().held[lock._id].hold


def test_a_write_lock_that_is_lost_does_not_become_a_read_lock(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    lock = zk_rwlock("key")
    with pytest.raises(LockLost) as lost, lock.write as write:  # noqa: PT012
        expire(zookeeper.hosts, session_for())
        eventually(lambda: write.lost, PATIENCE)
        with pytest.raises(LockLost, match="is lost"):
            lock.read.acquire()
        assert not lock.read.held
    assert lost.value.hold is write
    tree.await_line("key", 0)


@pytest.mark.parametrize("reaped", [False, True], ids=["node", "parent too"])
def test_a_write_lock_that_an_operator_broke_does_not_become_a_read_lock(
    tree: Tree, make_owner: MakeOwner, reaped: bool
) -> None:
    """Nobody has noticed yet: a hold watches its own node from its first heartbeat on."""
    lock, rival = zk_rwlock("key"), make_owner()
    with pytest.raises(LockLost), lock.write as write:  # noqa: PT012
        tree.client.delete(write.path)
        if reaped:
            with suppress(NoNodeError):  # the server has removed it before us
                tree.client.delete(tree.path("key"))
        assert rival.now(zk_rwlock("key", using="other").write.acquire)
        with pytest.raises(LockLost, match="before it became a read lock"):
            lock.read.acquire()
        assert not lock.read.held
        assert write.lost  # and that is known now
    assert len(tree.await_line("key", 1)) == 1
    assert beneficiaries(session_for()) == 0
    rival.now(zk_rwlock("key", using="other").write.release)


# --- lost replies --------------------------------------------------------------------------------


@pytest.fixture
def link(two_sessions: Settings, broken_link: TcpProxy) -> TcpProxy:
    """A link that breaks, of a session that outlives that on a busy machine, lease and all."""
    aliases = two_sessions.DISTLOCK
    two_sessions.DISTLOCK = {**aliases, "default": {**aliases["default"], "SESSION_TIMEOUT": 20}}
    return broken_link


def test_a_write_lock_that_is_lost_before_the_answer_does_not_become_a_read_lock(
    tree: Tree, link: TcpProxy, make_owner: MakeOwner
) -> None:
    lock, owner = zk_rwlock("key"), make_owner()
    assert owner.now(lock.write.acquire)
    write = owner.now(current).held[lock.write._id].grant
    link.black_hole("to_client")
    reads = owner.submit(lock.read.acquire, timeout=PATIENCE)
    tree.await_line("key", 2)
    write.lose()  # as when it was found broken meanwhile
    link.pass_through()
    assert isinstance(reads.exception(PATIENCE), LockLost)
    tree.await_line("key", 0)
    with pytest.raises(LockLost):
        owner.now(lock.write.release)
