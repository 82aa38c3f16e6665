"""`zk_leader`: one leads, the others wait, and whoever is asked says the truth.

Curator: TestLeaderSelector.testBasic, testLeaderNodeDeleteOnInterrupt, testServerDying by intent;
TestLeaderLatch.testBasic, testWaiting, testUncreatedPathGetLeader, testCallbackNotifier by intent.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from datetime import timedelta

import pytest

from distlock import LockBusy, LockKeyError, LockLost, zk_leader, zk_lock
from distlock.conf import UNSET, wait_limit
from distlock.inspection.state import LEADER
from distlock.keys.templates import key_of, znode_name
from distlock.locks.leader import Leader
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, expire, forgets_all

NAME = "beat"

pytestmark = pytest.mark.usefixtures("tree")


def leads(leader: Leader) -> bool:
    """Whether it leads now; mypy takes a property's value for lasting."""
    return leader.is_leader


def line(tree: Tree) -> list[str]:
    """The lock nodes of the leader and the candidates."""
    return [name for name in tree.children(f"{tree.namespace}/{LEADER}{NAME}") if "lock-" in name]


def await_line(tree: Tree, length: int) -> None:
    eventually(lambda: len(line(tree)) == length, PATIENCE, f"{length} in line")


def test_nobody_leads_where_nobody_asked() -> None:
    leader = zk_leader(NAME)
    assert leader.leader() is None
    assert leader.participants() == []
    assert not leader.is_leader


def test_the_leader_is_in_the_block_and_everybody_can_see_it(make_owner: MakeOwner) -> None:
    here, there = zk_leader(NAME), zk_leader(NAME, using="other")
    with here as hold:
        assert leads(here)
        assert make_owner().now(leads, here)  # asked by another thread
        assert not leads(there)
        seen = there.leader()
        assert seen is not None
        assert (seen.path, seen.token, seen.pid) == (hold.path, hold.token, os.getpid())
    assert not leads(here)
    assert hold.released


def test_the_next_in_line_leads_when_the_leader_leaves(tree: Tree, make_owner: MakeOwner) -> None:
    leaders = [zk_leader(NAME, using=using) for using in ["default", "other", "default"]]
    owners = [make_owner() for _ in leaders]
    elected: list[Future[bool]] = []
    for place, (owner, leader) in enumerate(zip(owners, leaders, strict=True), start=1):
        elected.append(owner.submit(leader.acquire))
        await_line(tree, place)
    for place, (owner, leader) in enumerate(zip(owners, leaders, strict=True)):
        assert elected[place].result(PATIENCE)
        assert [one.is_leader for one in leaders] == [one is leader for one in leaders]
        assert len(leader.participants()) == len(leaders) - place
        owner.now(leader.release)


def test_it_waits_for_ever_unless_a_timeout_is_given() -> None:
    def limit(leader: Leader) -> float | None:
        return wait_limit(True, UNSET, leader.options.timeout, leader.using)

    assert limit(zk_leader(NAME)) is None
    assert limit(zk_leader(NAME, timeout=timedelta(seconds=2))) == 2


def test_a_leader_is_reentrant_and_leads_until_the_last_release() -> None:
    outer, inner = zk_leader(NAME), zk_leader(NAME)
    with outer as hold, inner as same:
        assert hold is same
        assert inner.is_leader
    assert not outer.is_leader
    with outer as hold:
        with inner:
            pass
        assert outer.is_leader


def test_a_leader_whose_session_is_over_does_not_lead(
    zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    rival, rivals = make_owner(), zk_leader(NAME, using="other")
    leader = zk_leader(NAME)
    with pytest.raises(LockLost), leader as hold:  # noqa: PT012
        elected = rival.submit(rivals.acquire)
        eventually(lambda: len(rivals.participants()) == 2, PATIENCE)
        expire(zookeeper.hosts, session_for())
        assert elected.result(PATIENCE)
        eventually(lambda: hold.lost, PATIENCE)
        assert not leader.is_leader
    assert rivals.is_leader
    rival.now(rivals.release)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", [NAME, f"leader:{NAME}", f"{LEADER}{NAME}", f"%leader%3A{NAME}"], ids=str
)
def test_a_leader_never_meets_the_lock_of_any_key(key: str) -> None:
    assert not znode_name(key).startswith(LEADER)
    with zk_leader(NAME), zk_lock(key, timeout=0, using="other"):
        pass


def test_a_leader_is_shown_under_its_key() -> None:
    leader = zk_leader("Ärger um 5")
    with leader as hold:
        assert hold.key == leader.key == "%leader:Ärger um 5"
        assert key_of(hold.path.split("/")[-2]) == leader.key
    assert repr(leader) == "zk_leader('Ärger um 5', using='default')"


@pytest.mark.parametrize("name", ["", None, "\ud800"], ids=["empty", "None", "surrogate"])
def test_a_name_must_name_something(name: str) -> None:
    with pytest.raises(LockKeyError):
        zk_leader(name)


# --- stop ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("waiters", [1, 3])
def test_stop_ends_the_waits_in_line_with_nothing_left(
    tree: Tree, make_owner: MakeOwner, waiters: int
) -> None:
    leading, leader = zk_leader(NAME, using="other"), zk_leader(NAME)
    boss, owners = make_owner(), [make_owner() for _ in range(waiters)]
    assert boss.now(leading.acquire)
    waits = [owner.submit(leader.__enter__) for owner in owners]
    await_line(tree, 1 + waiters)
    leader.stop()
    for wait in waits:
        with pytest.raises(LockBusy, match="stop"):
            wait.result(PATIENCE)
    await_line(tree, 1)
    assert not leader._candidates
    forgets_all(session_for())
    boss.now(leading.release)


def test_stop_ends_an_async_wait(tree: Tree, make_owner: MakeOwner) -> None:
    leading, leader, boss = zk_leader(NAME, using="other"), zk_leader(NAME), make_owner()
    assert boss.now(leading.acquire)

    async def wait() -> None:
        async with leader:
            pytest.fail("led beside the leader")

    waiting = make_owner().submit(asyncio.run, wait())
    await_line(tree, 2)
    leader.stop()
    with pytest.raises(LockBusy, match="stop"):
        waiting.result(PATIENCE)
    await_line(tree, 1)
    boss.now(leading.release)


def test_stop_leaves_the_leader_alone() -> None:
    leader = zk_leader(NAME)
    with leader as hold:
        leader.stop()
        leader.stop()
        assert leader.is_leader
        hold.verify()
