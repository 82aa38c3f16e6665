"""`Leader.run` and `Leader.stay`: work is done by one at a time, again and again, until `stop`.

Curator: TestLeaderSelector.testAutoRequeue, testInterruption, testErrorPolicies by intent; Netflix
53 and CURATOR-73 (the requeue did not survive a lost connection). kazoo: TestElection.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from distlock import Hold, LockBusy, LockLost, LockUnavailable, zk_leader, zk_lock
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually, spawn_python
from tests.kit.losses import await_own_watch, said, tell
from tests.kit.tools import PATIENCE, MakeOwner, Tree

NAME = "beat"

pytestmark = pytest.mark.usefixtures("tree")


def test_work_is_done_again_and_again_until_told_to_stop(make_owner: MakeOwner) -> None:
    leader, tokens = zk_leader(NAME), []

    def work(hold: Hold) -> None:
        hold.check()
        assert leader.is_leader
        tokens.append(hold.token)
        if len(tokens) == 3:
            leader.stop()

    make_owner().now(leader.run, work)
    assert len(tokens) == 3
    assert tokens == sorted(set(tokens))
    assert not leader.is_leader


def test_two_candidates_take_turns_and_never_work_together(make_owner: MakeOwner) -> None:
    leaders = [zk_leader(NAME, using=using) for using in ["default", "other"]]
    turns: list[int] = []
    working = threading.Lock()

    def work_of(who: int) -> Callable[[Hold], None]:
        def work(_: Hold) -> None:
            assert working.acquire(blocking=False)
            # The other is in line before this one goes back there.
            eventually(lambda: len(leaders[who].participants()) == 2, PATIENCE)
            turns.append(who)
            if len(turns) == 6:
                for leader in leaders:
                    leader.stop()
            working.release()

        return work

    runs = [make_owner().submit(leader.run, work_of(who)) for who, leader in enumerate(leaders)]
    for run in runs:
        run.result(PATIENCE)
    first = turns[0]
    assert turns[:6] == [first, 1 - first] * 3


def test_a_grant_that_comes_with_the_stop_is_given_back_unused(
    monkeypatch: pytest.MonkeyPatch, make_owner: MakeOwner
) -> None:
    leader = zk_leader(NAME)
    leads = leader._leads

    def leads_and_is_stopped(hold: Hold) -> Hold:
        leader.stop()
        return leads(hold)

    monkeypatch.setattr(leader, "_leads", leads_and_is_stopped)
    make_owner().now(leader.run, lambda _: pytest.fail("worked after stop()"))


@pytest.mark.parametrize("error", [ValueError, LockBusy, LockUnavailable, LockLost, SystemExit])
def test_what_work_raises_ends_the_run_with_nothing_held(
    tree: Tree, make_owner: MakeOwner, error: type[BaseException]
) -> None:
    def work(_: Hold) -> None:
        raise error("of something else")

    with pytest.raises(error, match="of something else"):
        make_owner().now(zk_leader(NAME).run, work)
    eventually(lambda: not tree.lock_nodes(), PATIENCE)


def test_the_busy_lock_of_a_work_is_not_taken_for_the_leaders(make_owner: MakeOwner) -> None:
    leader, boss = zk_leader(NAME), make_owner()
    assert boss.now(zk_lock("stock", using="other").acquire)

    def work(_: Hold) -> None:
        leader.stop()
        with zk_lock("stock", timeout=0):
            pytest.fail("both have it")

    with pytest.raises(LockBusy, match="stock"):
        make_owner().now(leader.run, work)
    boss.now(zk_lock("stock", using="other").release)


# --- loss ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [True, False], ids=["work checks", "work returns"])
def test_who_has_lost_the_leadership_goes_back_to_the_line(
    tree: Tree, make_owner: MakeOwner, looks: bool
) -> None:
    leader, holds = zk_leader(NAME), []

    def work(hold: Hold) -> None:
        holds.append(hold)
        if len(holds) == 2:
            leader.stop()
            return
        await_own_watch(tree, hold)
        tree.client.delete(hold.path)
        eventually(lambda: hold.lost, PATIENCE)
        assert not leader.is_leader
        if looks:
            hold.check()

    make_owner().now(leader.run, work)
    first, second = holds
    assert second.token > first.token


def test_a_run_outlives_an_outage(
    broken_link: TcpProxy, make_owner: MakeOwner, caplog: pytest.LogCaptureFixture
) -> None:
    leader, worked = zk_leader(NAME), threading.Event()

    def work(_: Hold) -> None:
        worked.set()
        leader.stop()

    broken_link.cut()
    run = make_owner().submit(leader.run, work)
    eventually(lambda: "is waiting for the lock server" in caplog.text, PATIENCE)
    assert not worked.is_set()
    broken_link.pass_through()
    run.result(PATIENCE)
    assert worked.is_set()


def test_stop_ends_a_run_that_waits_for_zookeeper(
    broken_link: TcpProxy, make_owner: MakeOwner, caplog: pytest.LogCaptureFixture
) -> None:
    leader = zk_leader(NAME)
    broken_link.cut()
    run = make_owner().submit(leader.run, lambda _: None)
    eventually(lambda: "is waiting for the lock server" in caplog.text, PATIENCE)
    leader.stop()
    run.result(PATIENCE)


# --- stay ----------------------------------------------------------------------------------------


def test_a_leader_stays_for_as_long_as_it_says() -> None:
    leader = zk_leader(NAME)
    with leader:
        started = time.monotonic()
        assert leader.stay(0.3)
        assert time.monotonic() - started >= 0.3
        assert leader.stay(0)


def test_stop_ends_a_stay(make_owner: MakeOwner) -> None:
    leader, owner = zk_leader(NAME), make_owner()
    owner.now(leader.acquire)
    staying = owner.submit(leader.stay, None)
    leader.stop()
    assert staying.result(PATIENCE) is False
    assert owner.now(leader.stay, 0) is False
    owner.now(leader.release)


def test_a_loss_ends_a_stay_at_once(
    tree: Tree, make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, owner = zk_leader(NAME), make_owner()
    hold = owner.now(leader.__enter__)
    await_own_watch(tree, hold)
    # So that only the news of the loss can wake it.
    monkeypatch.setattr(Hold, "valid_for", lambda _: 2 * PATIENCE)
    staying = owner.submit(leader.stay, None)
    tree.client.delete(hold.path)
    assert staying.result(PATIENCE) is False
    with pytest.raises(LockLost):
        owner.now(leader.release)


def test_the_next_hold_is_stayed_in_asleep_after_one_was_lost(
    tree: Tree, make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = zk_leader(NAME)
    stays: list[bool] = []
    naps: list[Hold] = []
    valid_for = Hold.valid_for

    def looked_at(hold: Hold) -> float:
        naps.append(hold)
        return valid_for(hold)

    monkeypatch.setattr(Hold, "valid_for", looked_at)

    def work(hold: Hold) -> None:
        if not stays:
            await_own_watch(tree, hold)
            tree.client.delete(hold.path)
        stays.append(leader.stay(0.5 if stays else None))
        if len(stays) == 2:
            leader.stop()

    make_owner().now(leader.run, work)
    assert stays == [False, True]
    assert len(naps) < 100  # it would look a hundred thousand times without its sleep


def test_a_stay_ends_when_the_hold_runs_out_though_nobody_says_so(
    broken_link: TcpProxy, make_owner: MakeOwner
) -> None:
    leader, owner = zk_leader(NAME), make_owner()
    hold = owner.now(leader.__enter__)
    session_for().heartbeat.stop()  # which would tell
    staying = owner.submit(leader.stay, None)
    broken_link.cut()
    assert staying.result(PATIENCE) is False
    assert hold.lost
    with pytest.raises(LockLost):
        owner.now(leader.release)


# --- processes -----------------------------------------------------------------------------------

RUNS = """
import signal, sys
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=float(sys.argv[3]))
from distlock import zk_leader
leader = zk_leader("beat")
signal.signal(signal.SIGTERM, lambda *_: leader.stop())

def work(hold):
    print("leads", flush=True)
    while leader.stay(0.01):
        pass
    print("leads no more", flush=True)

print("runs", flush=True)
leader.run(work)
print("ended", flush=True)
sys.stdin.readline()
"""


def ends(process: subprocess.Popen[str]) -> None:
    """Let it say good-bye to the server, so that nothing is left."""
    tell(process)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_signal_ends_the_wait_of_one_process_and_the_work_of_the_other(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    arguments = (zookeeper.hosts, tree.namespace, "20")
    with spawn_python(RUNS, *arguments) as first:
        assert [said(first), said(first)] == ["runs", "leads"]
        with spawn_python(RUNS, *arguments) as second:
            assert said(second) == "runs"
            eventually(lambda: len(tree.lock_nodes()) == 2, PATIENCE)
            second.send_signal(signal.SIGTERM)
            assert said(second) == "ended"
            eventually(lambda: len(tree.lock_nodes()) == 1, PATIENCE)  # its process still lives
            ends(second)
        first.send_signal(signal.SIGTERM)
        assert [said(first), said(first)] == ["leads no more", "ended"]
        ends(first)


def test_the_next_process_leads_when_the_leader_is_killed(tree: Tree, zookeeper: ZooKeeper) -> None:
    arguments = (zookeeper.hosts, tree.namespace, "4")
    with spawn_python(RUNS, *arguments) as first:
        assert [said(first), said(first)] == ["runs", "leads"]
        with spawn_python(RUNS, *arguments) as second:
            assert said(second) == "runs"
            eventually(lambda: len(tree.lock_nodes()) == 2, PATIENCE)
            first.kill()
            assert said(second) == "leads"
            second.send_signal(signal.SIGTERM)
            assert [said(second), said(second)] == ["leads no more", "ended"]
            ends(second)
