"""Lost replies, cuts and ended sessions (CURATOR-315, -335, -604).

No permit leaks on reconnection, or between the create and the list; interrupts are in `test_leaks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from distlock import zk_semaphore
from distlock.contenders.contender import QueuedContender
from distlock.queue.semaphore import Program
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.permits import KEY, Permits
from tests.kit.tools import PATIENCE, MakeOwner, await_connection, expire, forgets_all
from tests.mutex.test_recovery import cut_and_heal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock_chaos.proxy import TcpProxy
    from distlock_chaos.server import ZooKeeper


@pytest.fixture
def connected(permits: Permits, patient_link: TcpProxy) -> TcpProxy:
    """The link that breaks, in use."""
    with zk_semaphore(KEY, 2):
        pass
    permits.await_(0, 0)
    return patient_link


@pytest.fixture
def before_permits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """What is to happen when somebody has come first at the queue; each is done once, in turn."""
    todo: list[Callable[[], object]] = []
    take = Program._take

    def do_and_take(program: Program[Any]) -> None:
        if todo and not program.permits:
            todo.pop(0)()
        take(program)

    monkeypatch.setattr(Program, "_take", do_and_take)
    yield todo
    assert not todo


# --- between the first requests ------------------------------------------------------------------


def test_a_caller_that_stands_still_between_its_first_requests_leaves_no_node(
    permits: Permits, connected: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection may end meanwhile, and another one begin: the thread reads on without it."""
    create = QueuedContender._create
    stood: list[int] = []

    def create_late(one: QueuedContender, *effects: Any) -> None:
        if not stood:
            stood.append(session_for().connection)
            cut_and_heal(connected)
            eventually(lambda: session_for().connection > stood[0] and session_for().connected)
            session_for().call(session_for().read, "/", timeout=PATIENCE, key="")
        create(one, *effects)

    monkeypatch.setattr(QueuedContender, "_create", create_late)
    with zk_semaphore(KEY, 2, timeout=PATIENCE):
        assert stood
        permits.await_(1, 0)
    permits.await_(0, 0)
    forgets_all(session_for())


# --- between the create and the list -------------------------------------------------------------


@pytest.mark.parametrize("wanted", [1, 2])
def test_permits_whose_creates_have_lost_their_answers_are_found(
    permits: Permits,
    connected: TcpProxy,
    make_owner: MakeOwner,
    before_permits: list[Callable[[], object]],
    wanted: int,
) -> None:
    """CURATOR-335: others would use the limit up, with them, for as long as the session lives."""
    before_permits.append(lambda: connected.black_hole("to_client"))
    session_id = await_connection().id
    granted = make_owner().submit(zk_semaphore(KEY, 2).acquire, timeout=PATIENCE, leases=wanted)
    permits.await_(wanted, 1)
    lost = permits.names()
    cut_and_heal(connected)
    assert granted.result(PATIENCE)
    assert session_for().id == session_id
    permits.await_(wanted, 0)
    assert set(lost) == set(permits.names())
    zk_semaphore(KEY, 2).release(wanted)
    forgets_all(session_for())


# --- reconnection --------------------------------------------------------------------------------


def test_a_short_cut_keeps_the_place_at_the_queue(
    permits: Permits, connected: TcpProxy, make_owner: MakeOwner
) -> None:
    holder = zk_semaphore(KEY, 2, using="other")
    assert holder.acquire(leases=2)
    first = make_owner().submit(zk_semaphore(KEY, 2).acquire, timeout=PATIENCE)
    permits.await_head(2)
    second = make_owner().submit(holder.acquire, timeout=PATIENCE)
    permits.await_(3, 2)
    nodes = permits.names(), permits.line()
    session_id = session_for().id
    cut_and_heal(connected)
    await_connection()
    assert session_for().id == session_id
    assert (permits.names(), permits.line()) == nodes
    holder.release()
    assert first.result(PATIENCE)
    assert not second.done()
    zk_semaphore(KEY, 2).release()
    assert second.result(PATIENCE)
    holder.release(2)
    forgets_all(session_for())


def test_a_release_during_a_cut_is_noticed_after_it(
    permits: Permits, connected: TcpProxy, make_owner: MakeOwner
) -> None:
    holder = zk_semaphore(KEY, 1, using="other")
    assert holder.acquire()
    waiting = make_owner().submit(zk_semaphore(KEY, 1).acquire, timeout=PATIENCE)
    permits.await_head(1)
    connected.cut()
    eventually(lambda: not session_for().connected, PATIENCE)
    holder.release()
    permits.await_(1, 1)
    connected.pass_through()
    assert waiting.result(PATIENCE)
    zk_semaphore(KEY, 1).release()


@pytest.mark.parametrize("where", ["at the head", "behind"])
def test_a_waiter_whose_session_ends_starts_again_at_the_queue(
    zookeeper: ZooKeeper, permits: Permits, make_owner: MakeOwner, where: str
) -> None:
    """CURATOR-315, -604: what is left of the old session gives no permit, and keeps none."""
    holder = zk_semaphore(KEY, 1, using="other")
    assert holder.acquire()
    ahead = []
    if where == "behind":
        ahead.append(make_owner().submit(holder.acquire, timeout=PATIENCE))
        permits.await_head(1)
    waiting = make_owner().submit(zk_semaphore(KEY, 1).acquire, timeout=2 * PATIENCE)
    permits.await_(2, 1 + len(ahead))
    before = set(permits.line()[-1:])
    expire(zookeeper.hosts, await_connection())
    eventually(
        lambda: len(permits.line()) == 1 + len(ahead) and not before & set(permits.line()), PATIENCE
    )
    permits.await_(2, 1 + len(ahead))
    for _ in range(1 + len(ahead)):
        assert not waiting.done()
        holder.release()
        assert all(one.result(PATIENCE) for one in ahead)
    assert waiting.result(PATIENCE)
    zk_semaphore(KEY, 1).release()
    forgets_all(session_for())


def test_a_place_at_the_gate_that_an_operator_breaks_is_taken_anew(
    permits: Permits, make_owner: MakeOwner
) -> None:
    """Two who wait for the same permit would keep each other out."""
    holder = zk_semaphore(KEY, 1, using="other")
    assert holder.acquire()
    waiting = make_owner().submit(zk_semaphore(KEY, 1).acquire, timeout=2 * PATIENCE)
    permits.await_head(1)
    (broken,) = permits.line()
    path = f"{permits.queue}/{broken}"
    eventually(lambda: watched(permits, path), PATIENCE, "a watch on its place")
    permits.tree.client.delete(path)
    eventually(lambda: permits.line() not in ([], [broken]), PATIENCE, "another place")
    permits.await_(2, 1)
    holder.release()
    assert waiting.result(PATIENCE)
    zk_semaphore(KEY, 1).release()


def watched(permits: Permits, path: str) -> bool:
    return path in str(permits.tree.client.command(b"wchp")).split()
