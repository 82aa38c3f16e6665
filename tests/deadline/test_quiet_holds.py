"""A hold in quiet times: it stays valid, and what keeping it costs.

The timeout that counts is the negotiated one.
"""

from __future__ import annotations

import time

import pytest

from distlock import LockLost, zk_lock
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually
from tests.kit.losses import Loss, SetOptions, await_own_watch, beneficiaries, pass_time
from tests.kit.stopwatch import Stopwatch
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, await_connection

KEY = "key"
T = 3.0  # a hold outlives it when the machine stands still for a second

pytestmark = pytest.mark.usefixtures("tree")


@pytest.fixture(autouse=True)
def _short_session(set_options: SetOptions) -> None:
    set_options(SESSION_TIMEOUT=T)


def test_a_quiet_hold_stays_valid_for_several_session_timeouts(
    tree: Tree, losses: list[Loss]
) -> None:
    session, lengths = await_connection(), []
    with zk_lock(KEY) as hold:
        ends = time.monotonic() + 2 * T
        while time.monotonic() < ends:
            hold.check()
            lengths.append(hold.valid_for())
            time.sleep(0.001)
        hold.verify()
        assert not hold.lost
        assert tree.line(KEY) == [hold.path.rpartition("/")[2]]
        assert session.deadline.epoch == 1
    assert min(lengths) > 0
    assert max(lengths) <= T * 2 / 3
    assert max(lengths) > T / 2  # renewed, and not only kept
    assert not losses


def test_the_lease_counts_from_the_send_and_not_from_the_answer(
    broken_link: TcpProxy, set_options: SetOptions
) -> None:
    set_options(SESSION_TIMEOUT=6, CONNECT_TIMEOUT=5)
    await_connection()
    broken_link.delay(0.5)
    with zk_lock(KEY) as hold:
        assert 0 < hold.valid_for() < 6 * 2 / 3 - 2 * 0.5
        broken_link.pass_through()


def test_a_hold_is_valid_for_no_time_once_it_is_released() -> None:
    with zk_lock(KEY) as hold:
        assert hold.valid_for() > 0
    assert hold.released
    assert hold.valid_for() == 0
    assert not hold.lost
    with pytest.raises(LockLost, match="released"):
        hold.check()


def requests_received(tree: Tree) -> int:
    """How many requests of this process's session the server has counted, pings too."""
    mine = f"sid=0x{session_for().id:x},"
    (line,) = [line for line in tree.client.command(b"cons").splitlines() if mine in line]
    return int(line.partition("recved=")[2].partition(",")[0])


@pytest.mark.deep
def test_a_hold_costs_a_note_and_one_request_in_a_sixth_of_the_session_timeout(
    tree: Tree, set_options: SetOptions, requests: list[str]
) -> None:
    set_options(SESSION_TIMEOUT=6)
    with zk_lock(KEY):
        requests.clear()
        before = requests_received(tree)
        with Stopwatch() as watch:
            pass_time(7)
            received = requests_received(tree) - before
    beats = requests.count("Sync")
    assert 4 <= beats <= watch.elapsed + 1  # seven, on a machine with nothing else to do
    assert set(requests) == {"Sync", "SetData", "GetData", "Delete"}
    assert requests.count("SetData") == 1
    # It watches its node from the first heartbeat on, and once more after it has noted there how
    # long it has waited, unless a late first heartbeat does that before.
    watched = requests.count("GetData")
    assert watched == (2 if requests.index("GetData") < requests.index("SetData") else 1)
    # There is no reason to send a ping, unless a heartbeat is late by a fifth of a second.
    assert received <= beats + watched + 3 + watch.held_up / 0.2


def test_a_session_that_nobody_needs_sends_no_heartbeat(tree: Tree, requests: list[str]) -> None:
    with zk_lock(KEY) as hold:
        await_own_watch(tree, hold)
    session = session_for()
    eventually(lambda: session.heartbeat._resting, PATIENCE)
    requests.clear()
    pass_time(T / 2)
    assert requests == []


def test_the_next_hold_gets_its_heartbeats_after_an_idle_time(requests: list[str]) -> None:
    with zk_lock(KEY):
        pass
    session = session_for()
    eventually(lambda: session.heartbeat._resting, PATIENCE)
    eventually(lambda: session.deadline.remaining == 0, PATIENCE)
    requests.clear()
    with zk_lock(KEY) as hold:
        eventually(lambda: requests.count("Sync") > 4, PATIENCE)  # a lease is as long as four
        hold.check()
        assert beneficiaries(session) == 1
    assert beneficiaries(session) == 0


def test_a_waiter_keeps_the_lease_too(holder: Owner, tree: Tree, make_owner: MakeOwner) -> None:
    waiter = make_owner()
    granted = waiter.submit(zk_lock(KEY).acquire, timeout=None)
    tree.await_line(KEY, 2)
    pass_time(T)
    session = session_for()
    assert session.deadline.remaining > 0
    holder.now(zk_lock(KEY, using="other").release)
    assert granted.result(PATIENCE)
    assert session.deadline.epoch == 1
    waiter.now(zk_lock(KEY).release)
    assert beneficiaries(session) == 0
