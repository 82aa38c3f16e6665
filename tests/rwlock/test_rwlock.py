"""Many readers or one writer, in one line, over two sessions."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from distlock import (
    IncompatiblePeer,
    LockBusy,
    LockKeyError,
    LockLost,
    NotOwner,
    revoke,
    zk_lock,
    zk_rwlock,
)
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, expire, forgets_all

if TYPE_CHECKING:
    from distlock import Mutex
    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("tree")


def test_readers_hold_together_and_keep_writers_out(make_owner: MakeOwner) -> None:
    readers = {make_owner(): zk_rwlock("key", using=using) for using in ("default", "other") * 2}
    writer, write = make_owner(), zk_rwlock("key").write
    for reader, lock in readers.items():
        assert reader.now(lock.read.acquire, timeout=0)
    for reader, lock in readers.items():
        assert not writer.now(write.acquire, timeout=0)
        reader.now(lock.read.release)
    assert writer.now(write.acquire)
    writer.now(write.release)


def test_a_writer_keeps_everybody_out(make_owner: MakeOwner) -> None:
    other = make_owner()
    with zk_rwlock("key").write:
        for using in ("default", "other"):
            rival = zk_rwlock("key", using=using)
            assert not other.now(rival.read.acquire, timeout=0)
            assert not other.now(rival.write.acquire, timeout=0)
    assert other.now(rival.write.acquire)
    other.now(rival.write.release)


def test_a_queued_writer_comes_before_the_readers_who_came_after_it(
    tree: Tree, make_owner: MakeOwner
) -> None:
    first, late, writer = make_owner(), make_owner(), make_owner()
    here, there = zk_rwlock("key"), zk_rwlock("key", using="other")
    assert first.now(here.read.acquire)
    writes = writer.submit(there.write.acquire, timeout=PATIENCE)
    tree.await_line("key", 2)
    assert not late.now(here.read.acquire, timeout=0)
    reads = late.submit(here.read.acquire, timeout=PATIENCE)
    _, queued, _ = tree.await_line("key", 3)
    first.now(here.read.release)
    assert writes.result(PATIENCE)
    tree.await_watches(f"{tree.path('key')}/{queued}")  # the late reader goes on waiting
    assert not reads.done()
    writer.now(there.write.release)
    assert reads.result(PATIENCE)
    late.now(here.read.release)


def test_all_readers_behind_a_writer_are_in_when_it_has_gone(
    tree: Tree, make_owner: MakeOwner
) -> None:
    lock, readers = zk_rwlock("key", using="other"), [make_owner() for _ in range(5)]
    with zk_rwlock("key").write as hold:
        granted = [reader.submit(lock.read.acquire, timeout=PATIENCE) for reader in readers]
        tree.await_line("key", 6)
        tree.await_watches(hold.path)  # they share the watch of their session
    assert all(grant.result(PATIENCE) for grant in granted)
    for reader in readers:
        reader.now(lock.read.release)
    forgets_all(session_for())


def test_a_reader_waits_for_the_first_of_the_writers_and_then_for_the_next(
    tree: Tree, make_owner: MakeOwner
) -> None:
    holder, writer, reader = make_owner(), make_owner(), make_owner()
    here, there = zk_rwlock("key"), zk_rwlock("key", using="other")
    assert holder.now(here.read.acquire)
    path = tree.path("key")
    java = tree.client.create(f"{path}/_c_{uuid4()}-__WRIT__", b"", ephemeral=True, sequence=True)
    writes = writer.submit(here.write.acquire, timeout=PATIENCE)
    *_, second = tree.await_line("key", 3)
    reads = reader.submit(there.read.acquire, timeout=PATIENCE)
    tree.await_line("key", 4)
    eventually(lambda: tree.watches() == {java: 2}, PATIENCE, "both watch the first writer")
    tree.client.delete(java)
    tree.await_watches(f"{path}/{second}")
    holder.now(here.read.release)
    assert writes.result(PATIENCE)
    assert not reads.done()
    writer.now(here.write.release)
    assert reads.result(PATIENCE)
    reader.now(there.read.release)


@pytest.mark.parametrize("side", ["read", "write"])
def test_both_sides_are_reentrant_and_count_for_themselves(
    tree: Tree, make_owner: MakeOwner, side: str
) -> None:
    lock: Mutex = getattr(zk_rwlock("key"), side)
    again: Mutex = getattr(zk_rwlock("key"), side)
    with lock as outer, again as inner:
        assert inner is outer
        assert len(tree.line("key")) == 1
        assert lock.held
        assert not make_owner().now(lambda: lock.held)
    with pytest.raises(NotOwner):
        lock.release()


def test_a_reader_enters_again_past_a_queued_writer(tree: Tree, make_owner: MakeOwner) -> None:
    lock, writer = zk_rwlock("key"), make_owner()
    with lock.read:
        writes = writer.submit(lock.write.acquire, timeout=PATIENCE)
        tree.await_line("key", 2)
        assert lock.read.acquire(timeout=0)
        lock.read.release()
        assert not writes.done()
    assert writes.result(PATIENCE)
    writer.now(lock.write.release)


def test_a_writer_reads_and_writes_again_inside(tree: Tree) -> None:
    lock = zk_rwlock("key")
    with lock.write, lock.read, lock.write, lock.read:
        assert (lock.write.held, lock.read.held) == (True, True)
        assert len(tree.line("key")) == 2
    assert (lock.write.held, lock.read.held) == (False, False)


def test_the_nodes_are_named_as_curators(tree: Tree) -> None:
    lock = zk_rwlock("key")
    with lock.read:
        (name,) = tree.line("key")
        assert re.fullmatch(r"_c_[0-9a-f-]{36}-__READ__\d{10}", name)
    with lock.write:
        name = tree.await_line("key", 1)[0]
        assert re.fullmatch(r"_c_[0-9a-f-]{36}-__WRIT__\d{10}", name)


def test_each_side_knows_its_participants_and_its_holder(tree: Tree, make_owner: MakeOwner) -> None:
    lock, there = zk_rwlock("key"), zk_rwlock("key", using="other")
    readers, writer, late = [make_owner(), make_owner()], make_owner(), make_owner()
    assert lock.read.holder() is lock.write.holder() is None
    for reader in readers:
        assert reader.now(there.read.acquire)
    writes = writer.submit(lock.write.acquire, timeout=PATIENCE)
    tree.await_line("key", 3)
    reads = late.submit(lock.read.acquire, timeout=PATIENCE)
    first, second, third, fourth = tree.await_line("key", 4)

    def names(side: Mutex) -> list[str]:
        return [one.path.rpartition("/")[2] for one in side.participants()]

    assert names(lock.read) == [first, second, fourth]
    assert names(lock.write) == [third]
    head = lock.read.holder()
    assert head is not None
    assert head.path.endswith(first)
    assert lock.write.holder() is None  # it waits
    assert lock.write.locked()
    for reader in readers:
        reader.now(there.read.release)
    assert writes.result(PATIENCE)
    eventually(lambda: names(lock.read) == [fourth])
    head = lock.write.holder()
    assert head is not None
    assert head.path.endswith(third)
    assert lock.read.holder() is None
    writer.now(lock.write.release)
    assert reads.result(PATIENCE)
    late.now(lock.read.release)


def test_a_writer_that_reads_holds_both_sides() -> None:
    lock = zk_rwlock("key")
    with lock.write as write, lock.read as read:
        for side, hold in ((lock.write, write), (lock.read, read)):
            holder = side.holder()
            assert holder is not None
            assert holder.path == hold.path


@pytest.mark.parametrize(("held", "wanted"), [("write", "read"), ("read", "write")])
def test_who_comes_too_late_is_told_who_holds_and_leaves_nothing(
    tree: Tree, make_owner: MakeOwner, held: str, wanted: str
) -> None:
    holder = make_owner()
    holds: Mutex = getattr(zk_rwlock("key", using="other"), held)
    wants: Mutex = getattr(zk_rwlock("key", timeout=0.2), wanted)
    assert holder.now(holds.acquire)
    (path,) = (f"{tree.path('key')}/{name}" for name in tree.line("key"))
    with pytest.raises(LockBusy) as busy, wants:
        pass
    assert busy.value.key == "key"
    assert busy.value.waited >= 0.2
    assert busy.value.holder is not None
    assert busy.value.holder.path == path
    tree.await_line("key", 1)
    tree.await_watches()
    forgets_all(session_for())
    holder.now(holds.release)


def test_a_mutex_of_the_same_key_excludes_both_and_is_excluded(make_owner: MakeOwner) -> None:
    other, mutex, lock = make_owner(), zk_lock("key"), zk_rwlock("key")
    with mutex:
        assert not other.now(lock.read.acquire, timeout=0)
        assert not other.now(lock.write.acquire, timeout=0)
    for side in (lock.read, lock.write):
        with side:
            assert not other.now(mutex.acquire, timeout=0)


def test_tasks_read_together_and_write_alone() -> None:
    together, written = asyncio.Event(), []
    inside = 0

    async def read(lock: Mutex) -> None:
        nonlocal inside
        async with lock as hold:
            assert hold.shared
            inside += 1
            if inside == 5:
                together.set()
            await together.wait()  # which never comes when one keeps another out
            inside -= 1

    async def write(lock: Mutex, name: str) -> None:
        async with lock as hold:
            assert not hold.shared
            assert not inside
            written.append(name)
            await asyncio.sleep(0)
            assert written[-1] == name

    async def run() -> None:
        lock = zk_rwlock("key", timeout=PATIENCE)
        readers = asyncio.gather(*(read(lock.read) for _ in range(5)))
        await asyncio.wait_for(readers, PATIENCE)
        await asyncio.gather(*(write(lock.write, name) for name in "abc"))
        assert await lock.read.aacquire(timeout=0)
        await lock.read.arelease()

    asyncio.run(run())
    assert sorted(written) == ["a", "b", "c"]


@pytest.mark.parametrize("recipe", ["Lock", "ReadLock", "WriteLock"])
@pytest.mark.parametrize("side", ["read", "write"])
def test_a_kazoo_lock_in_the_line_is_refused(tree: Tree, recipe: str, side: str) -> None:
    lock: Mutex = getattr(zk_rwlock("key"), side)
    with (
        getattr(tree.client, recipe)(tree.path("key"), "a kazoo client"),
        pytest.raises(IncompatiblePeer),
    ):
        lock.acquire(timeout=2)
    assert not lock.held
    tree.await_line("key", 0)


def test_readers_and_writers_can_be_asked_to_leave(tree: Tree) -> None:
    asked: list[Mutex] = []
    called = threading.Event()

    def leave(lock: Mutex) -> None:
        asked.append(lock)
        called.set()

    lock = zk_rwlock("key", on_revoke=leave)
    for side in (lock.read, lock.write):
        called.clear()
        with side:
            (participant,) = side.participants()
            assert revoke(participant)
            assert called.wait(PATIENCE)
        tree.await_line("key", 0)
    assert asked == [lock.read, lock.write]


def test_a_reader_whose_session_has_expired_has_lost_its_hold(
    tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    writer, there = make_owner(), zk_rwlock("key", using="other")
    with pytest.raises(LockLost), zk_rwlock("key").read as hold:  # noqa: PT012
        writes = writer.submit(there.write.acquire, timeout=PATIENCE)
        tree.await_line("key", 2)
        expire(zookeeper.hosts, session_for())
        assert writes.result(PATIENCE)
        eventually(lambda: hold.lost, PATIENCE)
    writer.now(there.write.release)


@pytest.mark.parametrize("key", ["", None, "\ud800", 5])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(LockKeyError):
        zk_rwlock(key)


def test_a_lock_and_its_sides_say_what_they_are() -> None:
    lock = zk_rwlock("key", using="other")
    assert repr(lock) == "zk_rwlock('key', using='other')"
    assert repr(lock.read) == "zk_rwlock('key', using='other').read"
    assert repr(lock.write) == "zk_rwlock('key', using='other').write"
