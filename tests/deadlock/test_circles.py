"""Who waits in a circle: one gives way, and the others go on."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import ExitStack
from typing import Any

import pytest

from distlock import (
    DeadlockDetected,
    lock_contended,
    lock_failed,
    zk_lock,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock_chaos.server import ZooKeeper
from tests.deadlock.tools import AFTER, given_way, notices, tie, wait
from tests.kit.helpers import eventually, spawn_python
from tests.kit.losses import SetOptions, said, tell
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree
from tests.mutex.test_signals_and_looking import received


def hand_over(held: Any, giver: Owner, wanted: Any, receiver: Owner, got: Any) -> None:
    """Who gave way releases what it holds, which lets the one before it go on; both end."""
    giver.now(held.release)
    assert got.result(PATIENCE) is True
    receiver.now(wanted.release)


def test_of_two_who_wait_for_each_other_the_later_one_gives_way(
    tree_of_waits: Tree, make_owner: MakeOwner
) -> None:
    a, b = zk_lock("a"), zk_lock("b")
    first, second = make_owner(), make_owner()
    waits = tie(tree_of_waits, [first, second], [a, b], [b, a])
    error = given_way(waits[1])
    assert not waits[0].done()
    assert tree_of_waits.await_line("a", 1)
    assert second.now(lambda: b.held)
    assert not second.now(lambda: a.held)
    hand_over(b, second, b, first, waits[0])
    assert (error.key, error.using, error.retry_after) == ("a", "default", 1.0)
    first.now(a.release)


def test_a_with_block_raises_it_too_and_the_signal_is_that_of_a_failure(
    tree_of_waits: Tree, make_owner: MakeOwner
) -> None:
    a, b = zk_lock("a", timeout=PATIENCE), zk_lock("b")
    first = make_owner()
    with received(lock_failed, lock_contended) as said:
        with b:
            assert first.now(a.acquire)
            waits = wait(tree_of_waits, first, b)
            with pytest.raises(DeadlockDetected) as raised, a:
                pytest.fail("both have it")
        assert waits.result(PATIENCE)
    ((signal, facts),) = said
    assert signal is lock_failed
    assert facts["error"] is raised.value
    assert facts["waited"] >= AFTER
    first.now(a.release)
    first.now(b.release)


def test_who_waits_behind_a_circle_waits_on(tree_of_waits: Tree, make_owner: MakeOwner) -> None:
    a, b, c = zk_lock("a"), zk_lock("b"), zk_lock("c")
    first, second, behind = make_owner(), make_owner(), make_owner()
    waits = tie(tree_of_waits, [first, second], [a, b], [b, a], timeout=2 * PATIENCE)
    (last,) = tie(tree_of_waits, [behind], [c], [a])  # the youngest of all, and in no circle
    given_way(waits[1])
    assert not last.done()
    hand_over(b, second, b, first, waits[0])
    first.now(a.release)
    assert last.result(PATIENCE)
    behind.now(a.release)
    behind.now(c.release)


@pytest.mark.usefixtures("tree_of_waits")
def test_tasks_are_owners_too() -> None:
    circle = [("a", "b"), ("b", "c"), ("c", "a")]
    holding: list[str] = []

    async def take(held: str, wanted: str, all_hold: asyncio.Event) -> str:
        async with zk_lock(held, timeout=PATIENCE):
            holding.append(held)
            if len(holding) == len(circle):
                all_hold.set()
            await all_hold.wait()
            try:
                async with zk_lock(wanted, timeout=PATIENCE):
                    return "had both"
            except DeadlockDetected:
                return "gave way"

    async def main() -> list[str]:
        threads, all_hold = threading.active_count(), asyncio.Event()
        taken = [asyncio.create_task(take(*keys, all_hold)) for keys in circle]
        ended = await asyncio.gather(*taken)
        assert threading.active_count() <= threads + 2  # the session's, however many wait
        return ended

    assert sorted(asyncio.run(main())) == ["gave way", "had both", "had both"]


# --- other recipes -------------------------------------------------------------------------------


def test_a_reader_behind_a_queued_writer(tree_of_waits: Tree, make_owner: MakeOwner) -> None:
    """Who reads waits for a lock of one who may not begin to read: a writer is ahead of it."""
    page, b = zk_rwlock("page"), zk_lock("b")
    reads, writes, wants_to_read = make_owner(), make_owner(), make_owner()
    assert reads.now(page.read.acquire)
    assert wants_to_read.now(b.acquire)
    written = wait(tree_of_waits, writes, page.write)
    read = wait(tree_of_waits, wants_to_read, page.read)
    waits = wait(tree_of_waits, reads, b)
    given_way(waits)
    reads.now(page.read.release)
    assert written.result(PATIENCE)
    writes.now(page.write.release)
    assert read.result(PATIENCE)
    wants_to_read.now(page.read.release)
    wants_to_read.now(b.release)


def test_a_multilock_gives_back_what_it_has_taken(
    tree_of_waits: Tree, make_owner: MakeOwner
) -> None:
    """Its order does not help one who holds a lock already."""
    table, both = zk_lock("table"), zk_multilock("lamp", "mirror", timeout=PATIENCE)
    first, second = make_owner(), make_owner()
    assert first.now(zk_lock("mirror").acquire)
    assert second.now(table.acquire)
    waits = wait(tree_of_waits, first, table)
    taken = second.submit(both.acquire)
    given_way(taken)
    tree_of_waits.await_line("lamp", 0)
    assert second.now(lambda: table.held)
    hand_over(table, second, table, first, waits)
    first.now(zk_lock("mirror").release)


def test_across_two_aliases(
    tree_of_waits: Tree, make_owner: MakeOwner, options: SetOptions
) -> None:
    options("other", NAMESPACE=f"{tree_of_waits.namespace}-other")
    here, there = zk_lock("a"), zk_lock("a", using="other")
    first, second = make_owner(), make_owner()
    assert first.now(here.acquire)
    assert second.now(there.acquire)
    waits = [
        first.submit(there.acquire, timeout=PATIENCE),
        second.submit(here.acquire, timeout=PATIENCE),
    ]
    owners = {waits[0]: (first, here, there), waits[1]: (second, there, here)}
    eventually(lambda: any(one.done() for one in waits), PATIENCE, "one that gives way")
    gone, stayed = sorted(waits, key=lambda one: not one.done())
    given_way(gone)
    owner, held, _ = owners[gone]
    owner.now(held.release)
    assert stayed.result(PATIENCE)
    owner, held, wanted = owners[stayed]
    owner.now(held.release)
    owner.now(wanted.release)


def test_one_key_by_two_aliases_of_one_tree_is_a_circle_of_one(
    tree_of_waits: Tree, make_owner: MakeOwner
) -> None:
    owner, lock = make_owner(), zk_lock("a")
    assert owner.now(lock.acquire)
    error = given_way(wait(tree_of_waits, owner, zk_lock("a", using="other")))
    assert (error.using, len(error.cycle)) == ("other", 1)
    owner.now(lock.release)


# --- no circles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["semaphore", "semaphore mutex"])
def test_a_semaphore_may_be_released_by_anybody(
    tree_of_waits: Tree, make_owner: MakeOwner, recipe: str
) -> None:
    a, b = zk_lock("a"), zk_semaphore("b", 1) if recipe == "semaphore" else zk_semaphore_mutex("b")
    first, second = make_owner(), make_owner()
    assert first.now(a.acquire)
    assert second.now(b.acquire)
    waits = first.submit(b.acquire, timeout=PATIENCE)
    eventually(b.waiters, PATIENCE, "one who waits for a lease")
    busy = second.submit(a.acquire, timeout=5 * AFTER)
    assert busy.result(PATIENCE) is False
    b.release()
    assert waits.result(PATIENCE)
    first.now(b.release)
    first.now(a.release)
    assert not notices(tree_of_waits)


# --- real processes ------------------------------------------------------------------------------


LOOKS_AFTER = 2

PROCESS = """
import json, sys
from tests.kit.tools import set_up
from tests.kit.stopwatch import Stopwatch
hosts, namespace, after, held, wanted = sys.argv[1:]
set_up(hosts, namespace, SESSION_TIMEOUT=20, CONNECT_TIMEOUT=20, DEADLOCK_AFTER=float(after))
from distlock import DeadlockDetected, zk_lock
with zk_lock(held):
    print("holds", flush=True)
    sys.stdin.readline()
    with Stopwatch() as watch:
        try:
            zk_lock(wanted, timeout=60).acquire()
            outcome = "has both"
        except DeadlockDetected as error:
            outcome = [str(error), *[one.pid for one in error.cycle]]
    print(json.dumps([outcome, watch.taken]), flush=True)
    if outcome == "has both":
        zk_lock(wanted).release()
sys.stdin.readline()
"""


def test_three_processes_get_out_of_it_in_time(tree_of_waits: Tree, zookeeper: ZooKeeper) -> None:
    keys = ["a", "b", "c"]
    where = (zookeeper.hosts, tree_of_waits.namespace, str(LOOKS_AFTER))
    with ExitStack() as stack:
        processes = [
            stack.enter_context(spawn_python(PROCESS, *where, key, keys[place - 2]))
            for place, key in enumerate(keys)
        ]
        for process in processes:
            assert said(process) == "holds"
        for process, wanted in zip(processes, "bca", strict=True):
            tell(process)
            tree_of_waits.await_line(wanted, 2)
        (words, *pids), taken = json.loads(said(processes[2]))
        assert "waits for 'a', held by" in words
        assert sorted(pids) == sorted(process.pid for process in processes)
        assert taken <= LOOKS_AFTER + 1  # since it closed the circle, which is the promise
        assert [json.loads(said(process))[0] for process in processes[:2]] == ["has both"] * 2
        for process in processes:
            tell(process)
            assert process.wait(20) == 0
