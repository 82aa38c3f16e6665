"""Faults that hit the leader while it leads: it is told, another one leads, and never both.

Curator, by intent: TestLeaderSelector.testLeaving, .testKillSession, .testServerDying,
.testKillServerAndLeader, .testAutoRequeue, .testInterruptLeadershipWithRequeue;
TestLeaderLatch.testLostConnection, .testSessionExpired; kazoo: TestElection.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from distlock import Hold, zk_leader
from distlock.locks.leader import Leader
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually, spawn_python
from tests.kit.losses import said
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection
from tests.leader.test_run import NAME, RUNS, ends

pytestmark = pytest.mark.deep


class Terms:
    """The work of candidates: it stays until it leads no more, and notes from when to when."""

    def __init__(self, make_owner: MakeOwner) -> None:
        self._make_owner = make_owner
        self._lock = threading.Lock()
        #: (who, token, when it began, when it was last sure to lead), in the order of their ends.
        self.ended: list[tuple[Leader, int, float, float]] = []
        self.hold: Hold | None = None

    def run(self, leader: Leader) -> Callable[[], None]:
        """Let a candidate run; return what stops it."""

        def work(hold: Hold) -> None:
            began = sure = time.monotonic()
            self.hold = hold
            while leader.stay(0.005):
                at = time.monotonic()
                if hold.valid_for() > 0:  # it was sure at a moment no later than this
                    sure = at
            with self._lock:
                self.ended.append((leader, hold.token, began, sure))

        run = self._make_owner().submit(leader.run, work)

        def stop() -> None:
            leader.stop()
            run.result(PATIENCE)

        return stop

    def one_at_a_time(self, *, told_within: float = 0.0) -> bool:
        """Whether nobody began while another was sure to lead, with rising tokens.

        :param told_within: seconds that it may take to tell a leader what came without warning
        """
        terms = sorted((began, sure, token) for _, token, began, sure in self.ended)
        return all(
            sure <= began + told_within and token < higher
            for (_, sure, token), (began, _, higher) in itertools.pairwise(terms)
        )


@pytest.fixture
def terms(make_owner: MakeOwner) -> Terms:
    return Terms(make_owner)


def two(terms: Terms, standing: Callable[[], int]) -> tuple[Leader, Leader, Callable[[], None]]:
    """The one of "default" leads, the one of "other" waits; and what stops both."""
    leading, waiting = zk_leader(NAME), zk_leader(NAME, using="other")
    await_connection()
    await_connection("other")
    stops = [terms.run(leading)]
    eventually(lambda: leading.is_leader, PATIENCE, "the first leader")
    stops.append(terms.run(waiting))
    eventually(lambda: standing() == 2, PATIENCE, "one who waits")

    def stop() -> None:
        for one in stops:
            one()

    return leading, waiting, stop


def lead_on(
    terms: Terms,
    waiting: Leader,
    stop: Callable[[], None],
    *,
    lost: Leader,
    told_within: float = 0.0,
) -> None:
    """The one who waited leads now, the former leader queues again, and both were never one."""
    eventually(lambda: waiting.is_leader, 2 * PATIENCE, "the next leader")
    eventually(lambda: not lost.is_leader, told_within, "a leader that is told")
    eventually(lambda: len(waiting.participants()) == 2, 2 * PATIENCE, "who queues again")
    stop()
    assert terms.ended[0][0] is lost
    assert len(terms.ended) >= 2
    assert terms.one_at_a_time(told_within=told_within)


# --- the link ------------------------------------------------------------------------------------


def cut(link: TcpProxy) -> None:
    link.cut()


def black_hole(link: TcpProxy) -> None:
    link.black_hole()


def deaf(link: TcpProxy) -> None:
    link.black_hole("to_client")


@pytest.mark.parametrize("fault", [cut, black_hole, deaf])
def test_a_leader_that_is_cut_off_is_replaced_and_queues_again(
    tree: Tree, broken_link: TcpProxy, terms: Terms, fault: Callable[[TcpProxy], None]
) -> None:
    leading, waiting, stop = two(terms, lambda: len(tree.lock_nodes()))
    fault(broken_link)
    eventually(lambda: not leading.is_leader, 2 * PATIENCE, "a leader that is told")
    eventually(lambda: waiting.is_leader, 2 * PATIENCE, "the next leader")
    broken_link.pass_through()
    lead_on(terms, waiting, stop, lost=leading)


# --- the process ---------------------------------------------------------------------------------


def test_a_leader_that_was_paused_for_too_long_leads_no_more_when_it_goes_on(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    arguments = (zookeeper.hosts, tree.namespace, "4")
    with spawn_python(RUNS, *arguments) as first, spawn_python(RUNS, *arguments) as second:
        leader, other = whose_turn(tree, first, second)
        os.kill(leader.pid, signal.SIGSTOP)
        try:
            assert said(other) == "leads"
        finally:
            os.kill(leader.pid, signal.SIGCONT)
        assert said(leader) == "leads no more"
        eventually(lambda: len(tree.lock_nodes()) == 2, PATIENCE, "it queues again")
        other.send_signal(signal.SIGTERM)
        assert [said(other), said(other)] == ["leads no more", "ended"]
        assert said(leader) == "leads"
        leader.send_signal(signal.SIGTERM)
        assert [said(leader), said(leader)] == ["leads no more", "ended"]
        ends(other)
        ends(leader)


def whose_turn(
    tree: Tree, first: subprocess.Popen[str], second: subprocess.Popen[str]
) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """Wait until one of two processes leads and the other waits; return them in this order."""
    assert said(first) == said(second) == "runs"
    eventually(lambda: len(tree.lock_nodes()) == 2, PATIENCE)
    leader = zk_leader(NAME).leader()
    assert leader is not None
    pair = (first, second) if leader.pid == first.pid else (second, first)
    assert said(pair[0]) == "leads"
    return pair
