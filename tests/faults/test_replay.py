"""A seed is a schedule: the same one each time, of every kind of fault, within the time given."""

from __future__ import annotations

import itertools

import pytest

from distlock_chaos.schedule import KINDS, Fault, plan


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


def test_several_servers_of_redis_see_no_fault_of_zookeeper() -> None:
    faults = plan(5, 900, nodes=3, session_timeout=4, redis=True)
    usual = {name for name, kind in KINDS.items() if kind.redis and not kind.named}
    assert {fault.kind for fault in faults} == usual
    assert {"failover", "demoted primary", "undone break"} <= usual


def test_faults_follow_each_other_and_end_within_the_time() -> None:
    faults = schedule(5, 120)
    for fault, following in itertools.pairwise(faults):
        assert fault.at + fault.lasts < following.at
    assert faults[-1].at + faults[-1].lasts < 120
