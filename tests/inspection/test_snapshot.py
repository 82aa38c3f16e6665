"""Who holds, who waits, since when: every kind of lock as real locks leave it in the tree."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest

from distlock import (
    zk_leader,
    zk_lease,
    zk_lock,
    zk_rwlock,
    zk_semaphore,
)
from distlock.engine.wire import Wire
from distlock.inspection.tree import look, snapshot
from distlock.lease.nodes import LeaseHolder
from distlock.owner.owner import label
from distlock.session import server_time
from distlock.session.registry import session_for
from tests.inspection.tools import cleared, found, names, stand, the_lock
from tests.kit.helpers import eventually
from tests.kit.permits import Permits
from tests.kit.tools import PATIENCE, MakeOwner, Tree

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]


def test_where_nothing_is_there_are_no_locks(tree: Tree) -> None:
    empty = found()
    assert (empty.locks, empty.keys, empty.cut) == ((), 0, False)
    assert empty.namespace == tree.namespace
    assert look("key").locks == ()
    assert not tree.client.exists(tree.namespace)


def test_a_mutex_with_its_holder_and_its_queue(tree: Tree, make_owner: MakeOwner) -> None:
    lock, other = zk_lock("stock:42"), zk_lock("stock:42", using="other")
    with label("GET /buy/42"), lock as hold:
        waiters = [make_owner(), make_owner()]
        for place, waiter in enumerate(waiters, start=2):
            waiter.submit(other.acquire, timeout=3 * PATIENCE)
            line = tree.await_line("stock:42", place)
        (seen,) = found().locks
        assert (seen.key, seen.kind, seen.holding, seen.waiting) == ("stock:42", "mutex", 1, 2)
        assert str(seen) == seen.name == "stock:42"
        (holder,) = seen.holders
        assert (holder.mode, holder.holds, holder.readable) == ("lock", True, True)
        assert (holder.participant.token, holder.participant.label) == (hold.token, "GET /buy/42")
        assert holder.participant.session_id == session_for().id
        assert "GET /buy/42" in str(holder)
        assert names(seen.waiters) == line[1:]
        assert not any(one.holds for one in seen.waiters)
        assert len({one.owner for one in seen.contenders}) == 3
    for waiter in waiters:
        eventually(lambda: waiter.now(lambda: other.held), PATIENCE)  # noqa: B023
        waiter.now(other.release)
    eventually(lambda: not found().locks, PATIENCE)


def test_readers_hold_together_and_a_writer_parts_them(tree: Tree, make_owner: MakeOwner) -> None:
    lock = zk_rwlock("report")
    readers = [make_owner(), make_owner()]
    for reader in readers:
        assert reader.now(lock.read.acquire)
    writer, late = make_owner(), make_owner()
    wrote = writer.submit(lock.write.acquire, timeout=3 * PATIENCE)
    tree.await_line("report", 3)
    read = late.submit(lock.read.acquire, timeout=3 * PATIENCE)
    line = tree.await_line("report", 4)
    seen = the_lock("report")
    assert (seen.kind, seen.holding, seen.waiting) == ("read/write", 2, 2)
    assert names(seen.holders) == line[:2]
    assert [one.mode for one in seen.contenders] == ["read", "read", "write", "read"]
    for reader in readers:
        reader.now(lock.read.release)
    assert wrote.result(PATIENCE)
    seen = the_lock("report")
    assert [one.mode for one in seen.holders] == ["write"]
    assert [one.mode for one in seen.waiters] == ["read"]
    assert writer.now(lock.read.acquire)
    assert [one.mode for one in the_lock("report").waiters] == ["read"]
    assert sorted(one.mode for one in the_lock("report").holders) == ["read", "write"]
    writer.now(lock.write.release)
    writer.now(lock.read.release)
    assert read.result(PATIENCE)
    late.now(lock.read.release)


def test_a_semaphore_with_its_leases_limit_and_line(tree: Tree, make_owner: MakeOwner) -> None:
    semaphore = zk_semaphore("mail", 2)
    holders = [make_owner(), make_owner()]
    for holder in holders:
        assert holder.now(semaphore.acquire)
    waiters = [make_owner(), make_owner()]
    # The first of the waiters has made its lease already, and does not hold it.
    got = [waiter.submit(semaphore.acquire, timeout=3 * PATIENCE) for waiter in waiters]
    Permits(tree, "mail").await_(3, 2)
    seen = the_lock("mail")
    assert (seen.kind, seen.limit, seen.holding, seen.waiting) == ("semaphore", 2, 2, 2)
    assert [one.mode for one in seen.contenders] == ["lease", "lease", "lock", "lock"]
    assert names(seen.holders) == Permits(tree, "mail").names()[:2]
    for holder in holders:
        holder.now(semaphore.release)
    for waiter, future in zip(waiters, got, strict=True):
        assert future.result(PATIENCE)
        waiter.now(semaphore.release)
    eventually(lambda: not look("mail", budget=PATIENCE).locks, PATIENCE)


def test_all_leases_that_one_waits_for_are_held_by_nobody(
    tree: Tree, make_owner: MakeOwner
) -> None:
    semaphore, holder, waiter = zk_semaphore("mail", 3), make_owner(), make_owner()
    assert holder.now(semaphore.acquire)
    got = waiter.submit(semaphore.acquire, leases=3, timeout=3 * PATIENCE)
    Permits(tree, "mail").await_(4, 1)
    for seen in (the_lock("mail"), snapshot(budget=PATIENCE).locks[0]):  # with and without data
        assert (seen.holding, seen.waiting) == (1, 1)
    holder.now(semaphore.release)
    assert got.result(PATIENCE)
    eventually(lambda: the_lock("mail").waiting == 0, PATIENCE)
    assert the_lock("mail").holding == 3
    waiter.now(semaphore.release, 3)


def test_a_persistent_lease_with_its_expiry_and_one_that_has_ended() -> None:
    lease = zk_lease("nightly", 600, owner="job:7")
    assert lease.acquire()
    ended = zk_lease("ended", 0.01, owner="job:8")
    assert ended.acquire()
    eventually(lambda: ended.holder() is None, PATIENCE)
    (seen,) = found().locks
    assert (seen.key, seen.kind, seen.name) == ("nightly", "lease", "@leases/nightly")
    (holder,) = seen.holders
    assert isinstance(holder.participant, LeaseHolder)
    assert holder.participant.owner_id == "job:7"
    expires = holder.participant.expires
    assert expires is not None
    assert 0 < (expires - datetime.now(tz=timezone.utc)).total_seconds() < 700
    lease.release()


def test_a_leader_is_named_without_its_prefix() -> None:
    beat = zk_leader("beat")
    assert beat.acquire()
    (seen,) = found().locks
    assert (seen.key, seen.kind, seen.holding) == ("beat", "leader", 1)
    with zk_lock("beat"):
        assert [one.kind for one in look("beat", budget=PATIENCE).locks] == ["mutex", "leader"]
    beat.release()


@pytest.mark.parametrize("key", ["naïve", "a/b", "a b", "100%", "zookeeper", ".", "%leader:x"])
def test_keys_are_told_as_they_were_given(key: str) -> None:
    with zk_lock(key):
        assert [one.key for one in found().locks] == [key]
        assert the_lock(key).key == key


def test_of_a_long_key_what_is_kept_is_told_and_its_name_finds_it() -> None:
    key = "x" * 500
    with zk_lock(key):
        (seen,) = found().locks
        assert seen.key == "x" * 120 + "…"
        assert the_lock(key).path == the_lock(seen.name).path == seen.path


# --- time ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("holder")
def test_waits_are_by_the_servers_clock(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    created = tree.client.exists(f"{tree.path('key')}/{tree.line('key')[0]}").ctime / 1000
    an_hour_ago = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: an_hour_ago)
    seen = found()
    (contender,) = seen.locks[0].holders
    assert seen.exact
    assert contender.since is not None
    assert contender.since.timestamp() == pytest.approx(created, abs=0.01)
    assert contender.seconds is not None
    assert 0 <= contender.seconds < 3 * PATIENCE
    assert seen.taken_at.timestamp() > created
    assert not [name for name in tree.children(tree.namespace) if name.startswith("@clock")]


@pytest.mark.usefixtures("holder")
def test_the_time_is_asked_for_once_a_minute() -> None:
    found()
    known = server_time._clocks[session_for()]
    found()
    assert server_time._clocks[session_for()] is known
    old = server_time.Clock(exact=True, offset=known.offset, found_at=known.found_at - 61)
    server_time._clocks[session_for()] = old
    found()
    assert server_time._clocks[session_for()] is not old


# --- depth ----------------------------------------------------------------------------------------


def test_a_depth_limits_what_is_read_and_not_what_is_counted(tree: Tree) -> None:
    with cleared(tree):
        for _ in range(5):
            stand(tree, "key")
        (seen,) = found(depth=2).locks
        assert (seen.holding, seen.waiting) == (1, 4)
        assert names(seen.contenders) == tree.line("key")[:3]
        assert len(the_lock("key").waiters) == 4
        assert [len(lock.waiters) for lock in look("key", depth=1).locks] == [1]


def test_many_reads_are_sent_in_one_go(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    with cleared(tree):
        for number in range(20):
            stand(tree, f"k{number}")
        assert len(found().locks) == 20  # and the server's time is known
        sent: list[object] = []
        transmit = Wire.transmit

        def count(self: Wire, *calls: tuple[object, object]) -> bool:
            sent.extend(calls)
            return transmit(self, *calls)

        monkeypatch.setattr(Wire, "transmit", count)
        assert len(found().locks) == 20
        assert len(sent) < 10
