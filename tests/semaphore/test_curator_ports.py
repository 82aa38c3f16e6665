"""Curator's TestInterProcessSemaphore, and TestInterProcessSemaphoreCluster, by intent.

Where Curator opens many clients in one JVM, these tests use two aliases: two sessions.
"""

from __future__ import annotations

import random
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from distlock import DistlockError, LockLost, zk_semaphore
from distlock.contenders.semaphore import SemaphoreContender, SemaphorePart
from distlock.queue.events import LIST
from distlock.session.registry import close_sessions, session_for
from tests.kit.helpers import eventually, raw_client
from tests.kit.permits import KEY, Inside, Permits
from tests.kit.tools import PATIENCE, MakeOwner, Tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlock_chaos.server import ZooKeeper

ALIASES = ["default", "other"]


def test_acquire_after_lost_server(
    own_zookeeper: ZooKeeper, make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """testAcquireAfterLostServer, CURATOR-335: the server goes between the create and the list."""
    (server,) = own_zookeeper.servers
    inside, stop, made = Inside(), threading.Event(), threading.Event()
    carry_out, kept_back = SemaphorePart.carry_out, []

    def keep_the_first_list_back(wire: SemaphorePart, effects: Sequence[Any]) -> None:
        if wire.path.endswith("/leases") and LIST in effects and not made.is_set():
            kept_back.append(partial(carry_out, wire, [LIST]))
            carry_out(wire, [effect for effect in effects if effect is not LIST])
            made.set()
        else:
            carry_out(wire, effects)

    def work() -> None:
        semaphore = zk_semaphore(KEY, 1, timeout=2 * PATIENCE)
        while not stop.is_set():
            try:
                with semaphore, inside.counted():
                    stop.wait(0.01)
            except DistlockError:
                stop.wait(0.1)

    with zk_semaphore(KEY, 1):
        pass
    monkeypatch.setattr(SemaphorePart, "carry_out", keep_the_first_list_back)
    workers = [make_owner().submit(work) for _ in range(5)]
    try:
        assert made.wait(PATIENCE)
        server.kill()
        eventually(lambda: not session_for().connected, PATIENCE)
        kept_back[0]()
        server.start()
        eventually(lambda: inside.entries >= 10, 2 * PATIENCE, "work after the restart")
    finally:
        stop.set()
    for worker in workers:
        worker.result(2 * PATIENCE)
    assert inside.most == 1


def test_threaded_permit_increase(make_owner: MakeOwner, permits: Permits) -> None:
    """testThreadedLeaseIncrease, CURATOR-75: a raised limit wakes who waits."""
    semaphore = zk_semaphore(KEY, 1)
    first = threading.Event()

    def take_two() -> bool:
        assert semaphore.acquire(timeout=PATIENCE)
        first.set()
        return semaphore.acquire(timeout=2 * PATIENCE)

    both = make_owner().submit(take_two)
    assert first.wait(PATIENCE)
    permits.await_head(1)
    semaphore.limit = 2
    assert both.result(PATIENCE)
    semaphore.release(2)


def test_client_close(permits: Permits) -> None:
    """testClientClose: what a client has is free when it closes."""
    one, two = zk_semaphore(KEY, 1), zk_semaphore(KEY, 1, using="other")
    assert two.acquire(timeout=PATIENCE)
    two.release()
    assert one.acquire(timeout=PATIENCE)
    close_sessions()
    assert two.acquire(timeout=PATIENCE)
    with pytest.raises(LockLost):
        one.release()
    two.release()
    permits.await_(0, 0)


@pytest.mark.usefixtures("permits")
def test_max_per_session(make_owner: MakeOwner) -> None:
    """testMaxPerSession: many clients take random numbers of permits, and never too many in all."""
    limit = random.randint(5, 20)  # noqa: S311 - no secret
    inside = Inside()

    def work(using: str) -> None:
        semaphore = zk_semaphore(KEY, limit, using=using)
        for _ in range(20):
            number = random.randint(1, limit)  # noqa: S311 - no secret
            assert semaphore.acquire(leases=number, timeout=3 * PATIENCE)
            with inside.counted(number):
                pass
            semaphore.release(number)

    workers = [make_owner().submit(work, using) for using in ALIASES * 4]
    for worker in workers:
        worker.result(4 * PATIENCE)
    assert (inside.count, inside.entries) == (0, 160)
    assert 0 < inside.most <= limit


@pytest.mark.usefixtures("permits")
def test_release_1_at_a_time(make_owner: MakeOwner) -> None:
    """testRelease1AtATime: twice as many as there are permits come, and all permits are used."""
    inside, full = Inside(), threading.Barrier(5, timeout=PATIENCE)

    def work(using: str) -> None:
        with zk_semaphore(KEY, 5, timeout=2 * PATIENCE, using=using), inside.counted():
            full.wait()

    workers = [make_owner().submit(work, using) for using in ALIASES * 5]
    for worker in workers:
        worker.result(3 * PATIENCE)
    assert (inside.entries, inside.most) == (10, 5)


@pytest.mark.usefixtures("permits")
def test_release_in_chunks(make_owner: MakeOwner) -> None:
    """testReleaseInChunks: who waits comes in as permits are given back, some at a time."""
    inside, may_leave = Inside(), threading.Semaphore(0)

    def work() -> None:
        semaphore = zk_semaphore(KEY, 11)
        assert semaphore.acquire(timeout=3 * PATIENCE)
        with inside.counted():
            assert may_leave.acquire(timeout=3 * PATIENCE)
        semaphore.release()

    workers = [make_owner().submit(work) for _ in range(40)]
    remaining = len(workers)

    def as_many_as_possible() -> bool:
        return inside.count == min(remaining, 11)

    def all_who_may_have_left() -> bool:
        return sum(worker.done() for worker in workers) == len(workers) - remaining

    while remaining:
        eventually(as_many_as_possible, PATIENCE)
        chunk = min(random.randint(1, 5), remaining)  # noqa: S311 - no secret
        may_leave.release(chunk)
        remaining -= chunk
        eventually(all_who_may_have_left, PATIENCE)
    for worker in workers:
        worker.result(PATIENCE)
    assert (inside.count, inside.most) == (0, 11)


@pytest.mark.usefixtures("permits")
def test_threads(make_owner: MakeOwner) -> None:
    """testThreads: ten threads share one object with one permit."""
    semaphore, inside = zk_semaphore(KEY, 1), Inside()

    def work() -> None:
        assert semaphore.acquire(timeout=PATIENCE)
        with inside.counted():
            pass
        semaphore.release()

    workers = [make_owner().submit(work) for _ in range(10)]
    for worker in workers:
        worker.result(PATIENCE)
    assert (inside.entries, inside.most) == (10, 1)


@pytest.mark.usefixtures("permits")
def test_simple() -> None:
    """testSimple: the second acquire of one permit is refused, by the same thread too."""
    semaphore = zk_semaphore(KEY, 1)
    assert semaphore.acquire(timeout=PATIENCE)
    assert not semaphore.acquire(timeout=0.2)
    semaphore.release()


@pytest.mark.usefixtures("permits")
def test_simple_2() -> None:
    """testSimple2: objects share the limit, and a permit that is given back is had again."""
    for _ in range(3):
        assert zk_semaphore(KEY, 3).acquire(timeout=PATIENCE)
    semaphore = zk_semaphore(KEY, 3)
    assert not semaphore.acquire(timeout=0.2)
    semaphore.release()
    assert semaphore.acquire(timeout=PATIENCE)
    semaphore.release(3)


@pytest.mark.usefixtures("permits")
def test_get_participant_nodes() -> None:
    """testGetParticipantNodes: as many participants as permits."""
    semaphore = zk_semaphore(KEY, 3)
    for _ in range(3):
        assert semaphore.acquire()
    assert len(semaphore.participants()) == 3
    semaphore.release(3)


def test_no_orphaned_nodes(make_owner: MakeOwner, permits: Permits) -> None:
    """testNoOrphanedNodes: a waiter whose permit node is deleted makes one more, and no orphan."""
    semaphore = zk_semaphore(KEY, 1)
    assert semaphore.acquire(timeout=PATIENCE)
    (first,) = permits.names()
    waiting = make_owner().submit(semaphore.acquire, timeout=2 * PATIENCE)
    permits.await_head(1)
    (broken,) = set(permits.names()) - {first}
    permits.tree.client.delete(f"{permits.path}/{broken}")
    eventually(
        lambda: len(permits.names()) == 2 and broken not in permits.names(), PATIENCE, "a new node"
    )
    assert not waiting.done()
    semaphore.release()
    assert waiting.result(PATIENCE)
    semaphore.release()
    permits.await_(0, 0)
    assert semaphore.acquire(timeout=PATIENCE)
    semaphore.release()


def test_interrupt_acquire(make_owner: MakeOwner, permits: Permits) -> None:
    """testInterruptAcquire, CURATOR-462: by any exception; by signals in `test_leaks`."""
    one, three = zk_semaphore(KEY, 1), zk_semaphore(KEY, 1)
    assert one.acquire(timeout=PATIENCE)
    gone = threading.Event()
    waiting = make_owner().submit(_interrupted, gone)
    permits.await_head(1)
    gone.set()
    with pytest.raises(InterruptedError):
        waiting.result(PATIENCE)
    permits.await_(1, 0)
    one.release()
    assert three.acquire(timeout=PATIENCE)
    three.release()


def _interrupted(gone: threading.Event) -> None:
    """Wait for a permit until an exception lands in the wait."""

    class Interrupted(SemaphoreContender):
        @property
        def error(self) -> None:
            if gone.is_set():
                raise InterruptedError

        @error.setter
        def error(self, error: None) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distlock.locks.semaphore.SemaphoreContender", Interrupted)
        zk_semaphore(KEY, 1).acquire(timeout=None)


# --- TestInterProcessSemaphoreCluster ------------------------------------------------------------


@pytest.mark.deep
def test_cluster(own_ensemble: ZooKeeper, namespace: str, make_owner: MakeOwner) -> None:
    """testCluster, testKilledServerWithEnsembleProvider: all servers go, and a majority comes back.

    Nobody is in while they are away, and one at a time is in after it.
    """
    stop, inside = threading.Event(), Inside()

    def work(using: str) -> None:
        semaphore = zk_semaphore(KEY, 1, timeout=PATIENCE, using=using)
        while not stop.is_set():
            try:
                with semaphore as hold, inside.counted():
                    eventually(lambda: hold.lost or stop.is_set(), 4 * PATIENCE)
            except DistlockError:
                stop.wait(0.1)

    workers = [make_owner().submit(work, using) for using in ALIASES * 2]
    try:
        eventually(lambda: inside.count == 1, PATIENCE)
        for server in own_ensemble.servers:
            server.kill()
        eventually(lambda: inside.count == 0, PATIENCE, "nobody inside")
        assert inside.entries == 1
        for server in own_ensemble.servers[:2]:
            server.start(wait=False)
        eventually(lambda: inside.count == 1, 4 * PATIENCE, "somebody inside")
    finally:
        stop.set()
    for worker in workers:
        worker.result(4 * PATIENCE)
    assert inside.most == 1
    with raw_client(own_ensemble.hosts) as client:
        Permits(Tree(client, namespace)).await_(0, 0)
