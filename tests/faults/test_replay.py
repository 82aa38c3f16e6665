"""A seed is a schedule: the same one each time, of every kind of fault, within the time given."""

from __future__ import annotations

import itertools

import pytest

from distlock_chaos.schedule import KINDS, SCENES, Fault, plan


def schedule(seed: int, seconds: float = 600, nodes: int = 3) -> list[Fault]:
    return plan(seed, seconds, nodes=nodes, session_timeout=4, network=nodes > 1)


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_same_seed_is_the_same_schedule(nodes: int) -> None:
    assert schedule(5, nodes=nodes) == schedule(5, nodes=nodes)


def test_it_stays_the_same_from_version_to_version() -> None:
    first = schedule(6082, 35, nodes=1)[0]
    assert first == Fault(
        kind="black hole with traffic", at=2.0, lasts=6.202, aimed=True, pick=first.pick
    )


def test_a_long_run_sees_all_kinds() -> None:
    usual = {name for name, kind in KINDS.items() if kind.zookeeper and not kind.named}
    assert {fault.kind for fault in schedule(5)} == usual


def test_scenes_come_after_the_other_faults() -> None:
    kinds = [fault.kind for fault in schedule(5)]
    first = min(kinds.index(name) for name in SCENES if name in kinds)
    usual = [name for name, kind in KINDS.items() if kind.zookeeper and not kind.named]
    assert sorted(kinds[:first]) == sorted(set(usual) - set(SCENES))


@pytest.mark.parametrize(
    ("name", "recipe", "message"),
    [
        ("earthquake", "distlock", "There is no fault 'earthquake'. Choose from: pause, "),
        ("leader pause", "distlock", "needs 3 servers"),
        ("clock step", "distlock", "for these recipes only: lease"),
        ("line begun anew", "semaphore", "for these recipes only: distlock, kazoo, multilock"),
    ],
)
def test_a_fault_that_cannot_be_brought_about_is_refused(
    name: str, recipe: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plan(5, 60, nodes=1, session_timeout=4, only=[name], recipe=recipe)


def test_a_fault_that_needs_long_sessions_is_refused_with_shorter_ones() -> None:
    with pytest.raises(ValueError, match="needs long sessions: give --session-timeout 15"):
        plan(5, 60, nodes=3, session_timeout=4, only=["lost reply"])


def test_several_servers_of_redis_see_no_fault_of_zookeeper() -> None:
    faults = plan(5, 900, nodes=3, session_timeout=4, redis=True)
    usual = {name for name, kind in KINDS.items() if kind.redis and not kind.named}
    assert {fault.kind for fault in faults} == usual
    assert {"failover", "demoted primary", "undone break"} <= usual


def test_a_partition_without_a_network_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="needs Linux, root, and the programs ip, nft and ss"):
        plan(5, 60, nodes=3, session_timeout=4, only=["leader partition"])


def test_a_leaders_pause_is_shorter_than_a_session() -> None:
    faults = plan(5, 600, nodes=3, session_timeout=10, only=["leader pause"])
    assert all(5 <= fault.lasts <= 8 for fault in faults)


def test_one_server_sees_no_fault_that_needs_several() -> None:
    kinds = {fault.kind for fault in schedule(5, nodes=1)}
    usual = {name for name, kind in KINDS.items() if kind.zookeeper and not kind.named}
    assert kinds == {name for name in usual if KINDS[name].nodes == 1}


def test_faults_follow_each_other_and_end_within_the_time() -> None:
    faults = schedule(5, 120)
    for fault, following in itertools.pairwise(faults):
        assert fault.at + fault.lasts < following.at
    assert faults[-1].at + faults[-1].lasts < 120
