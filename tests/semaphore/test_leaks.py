"""No lease leaks, whatever breaks: PITFALLS 27 (CURATOR-315, -335, -376, -462).

On reconnection, between the create and the list, on an interrupt, and when threads release at once.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from distlock import LockUnavailable, NotOwner, zk_semaphore
from distlock.gate import SemaphorePlace
from distlock.session import session_for
from tests.helpers import eventually, spawn_python
from tests.mutex.test_recovery import cut_and_heal
from tests.mutex.tools import PATIENCE, MakeOwner, await_connection, expire, forgets_all
from tests.semaphore.tools import KEY, Leases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.testing.proxy import TcpProxy
    from distlock.testing.server import ZooKeeper


@pytest.fixture
def connected(leases: Leases, broken_link: TcpProxy) -> TcpProxy:
    """The link that breaks, in use."""
    with zk_semaphore(KEY, 2):
        pass
    leases.await_(0, 0)
    return broken_link


@pytest.fixture
def before_leases(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """What is to happen when somebody has come first at the gate; each is done once, in turn."""
    todo: list[Callable[[], object]] = []
    make = SemaphorePlace._make_leases

    def do_and_make(place: SemaphorePlace) -> None:
        if todo:
            todo.pop(0)()
        make(place)

    monkeypatch.setattr(SemaphorePlace, "_make_leases", do_and_make)
    yield todo
    assert not todo


# --- between the create and the list -------------------------------------------------------------


@pytest.mark.parametrize("wanted", [1, 2])
def test_leases_whose_creates_have_lost_their_answers_are_made_anew(
    leases: Leases,
    connected: TcpProxy,
    make_owner: MakeOwner,
    before_leases: list[Callable[[], object]],
    wanted: int,
) -> None:
    """CURATOR-335: the old nodes would use the limit up for as long as the session lives."""
    before_leases.append(lambda: connected.black_hole("to_client"))
    session_id = await_connection().id
    granted = make_owner().submit(zk_semaphore(KEY, 2).acquire, timeout=PATIENCE, leases=wanted)
    leases.await_(wanted, 1)
    lost = leases.names()
    cut_and_heal(connected)
    assert granted.result(PATIENCE)
    assert session_for().id == session_id
    leases.await_(wanted, 0)
    assert not set(lost) & set(leases.names())
    zk_semaphore(KEY, 2).release(wanted)
    forgets_all(session_for())


def test_leases_of_a_caller_that_gave_up_before_the_answer_are_deleted(
    leases: Leases, connected: TcpProxy, before_leases: list[Callable[[], object]]
) -> None:
    before_leases.append(lambda: connected.black_hole("to_client"))
    session_id = await_connection().id
    with pytest.raises(LockUnavailable):
        zk_semaphore(KEY, 2).acquire(timeout=0.3, leases=2)
    leases.await_(2, 0)
    cut_and_heal(connected)
    leases.await_(0, 0)
    assert session_for().id == session_id  # deleted, and not gone with it
    forgets_all(session_for())


def test_leases_that_reach_the_server_after_the_caller_gave_up_are_deleted(
    leases: Leases, connected: TcpProxy, before_leases: list[Callable[[], object]]
) -> None:
    before_leases.append(lambda: connected.black_hole("to_server"))
    await_connection()
    before = leases.tree.client.get(leases.path)[1].cversion
    with pytest.raises(LockUnavailable):
        zk_semaphore(KEY, 2).acquire(timeout=0.3, leases=2)
    connected.pass_through()
    # The ghosts were made, or the test proves nothing, and are gone.
    eventually(lambda: leases.tree.client.get(leases.path)[1].cversion == before + 4, PATIENCE)
    leases.await_(0, 0)


# --- reconnection --------------------------------------------------------------------------------


def test_a_short_cut_keeps_the_place_at_the_gate(
    leases: Leases, connected: TcpProxy, make_owner: MakeOwner
) -> None:
    holder = zk_semaphore(KEY, 2, using="other")
    assert holder.acquire(leases=2)
    first = make_owner().submit(zk_semaphore(KEY, 2).acquire, timeout=PATIENCE)
    leases.await_head(2)
    second = make_owner().submit(holder.acquire, timeout=PATIENCE)
    leases.await_(3, 2)
    nodes = leases.names(), leases.line()
    session_id = session_for().id
    cut_and_heal(connected)
    await_connection()
    assert session_for().id == session_id
    assert (leases.names(), leases.line()) == nodes
    holder.release()
    assert first.result(PATIENCE)
    assert not second.done()
    zk_semaphore(KEY, 2).release()
    assert second.result(PATIENCE)
    holder.release(2)
    forgets_all(session_for())


def test_a_release_during_a_cut_is_noticed_after_it(
    leases: Leases, connected: TcpProxy, make_owner: MakeOwner
) -> None:
    holder = zk_semaphore(KEY, 1, using="other")
    assert holder.acquire()
    waiting = make_owner().submit(zk_semaphore(KEY, 1).acquire, timeout=PATIENCE)
    leases.await_head(1)
    connected.cut()
    eventually(lambda: not session_for().connected, PATIENCE)
    holder.release()
    leases.await_(1, 1)
    connected.pass_through()
    assert waiting.result(PATIENCE)
    zk_semaphore(KEY, 1).release()


@pytest.mark.parametrize("where", ["at the head", "behind"])
def test_a_waiter_whose_session_ends_starts_again_at_the_gate(
    zookeeper: ZooKeeper, leases: Leases, make_owner: MakeOwner, where: str
) -> None:
    """CURATOR-315, -604: what is left of the old session gives no lease, and keeps none."""
    holder = zk_semaphore(KEY, 1, using="other")
    assert holder.acquire()
    ahead = []
    if where == "behind":
        ahead.append(make_owner().submit(holder.acquire, timeout=PATIENCE))
        leases.await_head(1)
    waiting = make_owner().submit(zk_semaphore(KEY, 1).acquire, timeout=2 * PATIENCE)
    leases.await_(2, 1 + len(ahead))
    before = set(leases.line()[-1:])
    expire(zookeeper.hosts, await_connection())
    eventually(
        lambda: len(leases.line()) == 1 + len(ahead) and not before & set(leases.line()), PATIENCE
    )
    leases.await_(2, 1 + len(ahead))
    for _ in range(1 + len(ahead)):
        assert not waiting.done()
        holder.release()
        assert all(one.result(PATIENCE) for one in ahead)
    assert waiting.result(PATIENCE)
    zk_semaphore(KEY, 1).release()
    forgets_all(session_for())


def test_a_place_at_the_gate_that_an_operator_breaks_is_taken_anew(
    leases: Leases, make_owner: MakeOwner
) -> None:
    """Two who wait for the same lease would keep each other out."""
    holder = zk_semaphore(KEY, 1, using="other")
    assert holder.acquire()
    waiting = make_owner().submit(zk_semaphore(KEY, 1).acquire, timeout=2 * PATIENCE)
    leases.await_head(1)
    (broken,) = leases.line()
    path = f"{leases.gate}/{broken}"
    eventually(lambda: watched(leases, path), PATIENCE, "a watch on its place")
    leases.tree.client.delete(path)
    eventually(lambda: leases.line() not in ([], [broken]), PATIENCE, "another place")
    leases.await_(2, 1)
    holder.release()
    assert waiting.result(PATIENCE)
    zk_semaphore(KEY, 1).release()


def watched(leases: Leases, path: str) -> bool:
    return path in str(leases.tree.client.command(b"wchp")).split()


def test_a_release_in_an_outage_is_done_after_it(leases: Leases, connected: TcpProxy) -> None:
    semaphore = zk_semaphore(KEY, 2)
    assert semaphore.acquire(leases=2)
    connected.cut()
    eventually(lambda: not session_for().connected, PATIENCE)
    semaphore.release(2)
    assert len(leases.names()) == 2
    connected.pass_through()
    leases.await_(0, 0)


# --- interrupts and time-outs --------------------------------------------------------------------


def test_a_hundred_waits_that_timed_out_leave_no_node_no_watch_and_no_memory(
    leases: Leases, make_owner: MakeOwner
) -> None:
    with zk_semaphore(KEY, 1, using="other"):
        owners = [make_owner() for _ in range(10)]
        waits = [owner.submit(zk_semaphore(KEY, 1).acquire, timeout=0.02) for owner in owners * 10]
        assert not any(wait.result(PATIENCE) for wait in waits)
        leases.await_(1, 0)
        leases.tree.await_watches()
        forgets_all(session_for())
        assert not session_for().heartbeat._beneficiaries


WAITS_IN_MAIN_THREAD = """
import sys
from tests.mutex.tools import set_up
set_up(sys.argv[1], sys.argv[2])
from distlock import zk_semaphore
try:
    zk_semaphore("key", 1).acquire(timeout=None)
except BaseException as error:
    print(type(error).__name__)
sys.stdin.read()
"""


def test_an_interrupted_wait_leaves_nothing(zookeeper: ZooKeeper, leases: Leases) -> None:
    """CURATOR-462. The process lives on, so that its session does not clean up for it."""
    with (
        zk_semaphore(KEY, 1),
        spawn_python(WAITS_IN_MAIN_THREAD, zookeeper.hosts, leases.tree.namespace) as process,
    ):
        leases.await_head(1)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "KeyboardInterrupt\n"
        leases.await_(1, 0)
        process.communicate(timeout=PATIENCE)


# An alarm goes off at a random moment of each round, inside acquire, the body or release.
HAMMERED = """
import random, signal, sys
from contextlib import suppress
from tests.mutex.tools import await_connection, set_up
set_up(sys.argv[1], sys.argv[2], TIMEOUT=0.05)
from distlock import LockBusy, zk_semaphore

class SoftLimit(BaseException):
    pass

def soft_limit(number, frame):
    if frame.f_code.co_name == "__exit__" and frame.f_lineno == frame.f_code.co_firstlineno:
        # Before its first line no __exit__ written in Python can do anything (CPython 74174).
        signal.setitimer(signal.ITIMER_REAL, 0.00001)
        return
    raise SoftLimit

chance, longest = random.Random(sys.argv[3]), 0.005
signal.signal(signal.SIGALRM, soft_limit)
await_connection()
semaphore = zk_semaphore("key", 2)
with semaphore:
    pass
hit, entered, kept = 0, 0, 0
for _ in range(300):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00001, longest))
        with suppress(LockBusy), semaphore:
            entered += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        longest = max(longest * 0.9, 0.0005)
    except SoftLimit:
        hit += 1
        longest = min(longest * 1.1, 0.05)  # so that every second block is hit, on any machine
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    kept += semaphore.held > 0
print(hit, entered, kept)
sys.stdin.read()
"""


def test_an_exception_at_any_moment_of_a_block_leaves_no_node_and_no_lease(
    zookeeper: ZooKeeper, leases: Leases
) -> None:
    seed = str(time.time_ns())
    with spawn_python(HAMMERED, zookeeper.hosts, leases.tree.namespace, seed) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        hit, entered, kept = map(int, line.split())
        assert hit > 20
        assert entered > 20
        assert kept == 0, f"seed {seed}: {kept} of {hit} interrupted blocks kept a lease"
        leases.await_(0, 0)
        process.communicate(timeout=PATIENCE)


def test_tasks_cancelled_at_any_moment_leave_no_node_and_no_lease(leases: Leases) -> None:
    chance, semaphore = random.Random(), zk_semaphore(KEY, 2)  # noqa: S311 - no secret

    async def try_for_a_moment() -> bool:
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(chance.uniform(0.0001, 0.03)), semaphore:
                await asyncio.sleep(0)
                return True
        return False

    async def hammer() -> list[bool]:
        rounds = [await asyncio.gather(*(try_for_a_moment() for _ in range(5))) for _ in range(30)]
        return [entered for entered_in_round in rounds for entered in entered_in_round]

    entered = asyncio.run(hammer())
    assert any(entered)
    assert not all(entered)
    assert semaphore.held == 0
    leases.await_(0, 0)
    forgets_all(session_for())


# --- releases at once ----------------------------------------------------------------------------


def test_threads_that_release_at_once_give_back_a_lease_each(
    leases: Leases, make_owner: MakeOwner
) -> None:
    """CURATOR-376: one lease given back twice is another one that is never given back."""
    semaphore, interval = zk_semaphore(KEY, 8), sys.getswitchinterval()
    owners = [make_owner() for _ in range(6)]
    together = threading.Barrier(len(owners), timeout=PATIENCE)

    def release() -> bool:
        together.wait()
        try:
            semaphore.release()
        except NotOwner:
            return False
        return True

    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            assert semaphore.acquire(leases=4)
            released = [owner.submit(release) for owner in owners]
            assert sum(one.result(PATIENCE) for one in released) == 4
            assert semaphore.held == 0
    finally:
        sys.setswitchinterval(interval)
    leases.await_(0, 0)
