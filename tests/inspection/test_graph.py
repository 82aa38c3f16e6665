"""Who waits for whom, and where that goes round in a circle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from distlock.inspection import wait_graph
from distlock.inspection.state import Contender, Kind, Lock
from distlock.inspection.wait_graph import cycles, deadlocks
from distlock.keys.znodes import Participant
from tests.inspection.tools import cleared, found, stand
from tests.kit.tools import PATIENCE, Tree

pytestmark = pytest.mark.engines("zookeeper", "redis")


def lock(
    key: str, holders: str, waiters: str, kind: Kind = "mutex", holding: int | None = None
) -> Lock:
    """A lock with owners of one letter; a dot is a peer."""

    def contender(owner: str, place: int, holds: bool) -> Contender:
        path = f"/{key}/{place}"
        who = Participant(
            path=path,
            sequence=place,
            token=100 * ord(key) + place,
            session_id=1,
            owner_id=owner.strip("."),
        )
        return Contender(participant=who, mode="lock", holds=holds)

    return Lock(
        key=key,
        name=key,
        path=f"/{key}",
        kind=kind,
        holding=len(holders) if holding is None else holding,
        waiting=len(waiters),
        holders=tuple(contender(one, place, True) for place, one in enumerate(holders)),
        waiters=tuple(
            contender(one, place, False) for place, one in enumerate(waiters, len(holders))
        ),
    )


def rings(*locks: Lock) -> list[str]:
    """The owners of each cycle, from the first by name."""
    return ["".join(link.waiter.owner for link in cycle.links) for cycle in cycles(locks)]


@pytest.mark.parametrize(
    ("locks", "expected"),
    [
        ([], []),
        ([lock("1", "a", "bc")], []),
        ([lock("1", "a", "b"), lock("2", "b", "c")], []),
        ([lock("1", "a", "b"), lock("2", "b", "a")], ["ab"]),
        ([lock("1", "a", "a")], ["a"]),
        ([lock("1", "a", "b"), lock("2", "b", "c"), lock("3", "c", "a")], ["acb"]),
        # Behind others in line, and with others behind.
        ([lock("1", "a", "xyb"), lock("2", "b", "a"), lock("3", "x", "w")], ["ab"]),
        # Two at a time.
        (
            [lock("1", "a", "b"), lock("2", "b", "a"), lock("3", "c", "d"), lock("4", "d", "c")],
            ["ab", "cd"],
        ),
        # One reader of several is enough, and so is a writer who waits for them.
        ([lock("1", "abc", "wr", "read/write"), lock("2", "r", "b")], ["br"]),
        ([lock("1", "abc", "w", "read/write"), lock("2", "w", "c")], ["cw"]),
        # Peers do not say who they are.
        ([lock("1", ".", "b"), lock("2", "b", ".")], []),
        # Of a semaphore, all have to be stuck.
        ([lock("1", "ab", "c", "semaphore"), lock("2", "c", "a")], []),
        ([lock("1", "ab", "c", "semaphore"), lock("2", "c", "ab")], ["ac"]),
        ([lock("1", "ab", "c", "semaphore", holding=3), lock("2", "c", "ab")], []),
        ([lock("1", "", "c", "semaphore"), lock("2", "c", "a")], []),
    ],
)
def test_cycles_are_found_and_nothing_else(locks: Sequence[Lock], expected: list[str]) -> None:
    assert rings(*locks) == expected
    assert rings(*reversed(locks)) == expected


def test_who_has_a_permit_and_is_still_in_the_queue_is_not_stuck() -> None:
    stuck = lock("1", "a", "a", "semaphore")
    assert rings(stuck) == ["a"]
    (permit,), (queued,) = stuck.holders, stuck.waiters
    earlier = replace(queued.participant, token=permit.participant.token - 1)
    assert rings(replace(stuck, waiters=(replace(queued, participant=earlier),))) == []


def test_the_shortest_cycle_of_a_tangle_is_told() -> None:
    tangle = [
        lock("1", "a", "b", "read/write"),
        lock("2", "b", "c"),
        lock("3", "cb", "a", "read/write"),
    ]
    assert rings(*tangle) == ["ab"]


def test_a_long_chain_of_stuck_owners_is_no_depth_of_calls() -> None:
    owners = [chr(0x4E00 + number) for number in range(5000)]
    ring = [lock(owner, owner, owners[number - 1]) for number, owner in enumerate(owners)]
    (cycle,) = cycles(ring)
    assert len(cycle.links) == 5000
    assert cycles(ring[1:]) == []


def test_a_cycle_says_who_who_is_youngest_and_whether_it_is_certain() -> None:
    (cycle,) = cycles([lock("1", "a", "b"), lock("2", "b", "a")])
    assert str(cycle) == "a waits for '2', held by b waits for '1', held by a"
    assert cycle.youngest.owner == "a"
    assert cycle.certain
    assert len(cycle.nodes) == 2
    (cycle,) = cycles([lock("1", "a", "b", "semaphore"), lock("2", "b", "a")])
    assert not cycle.certain


# --- in the tree ---------------------------------------------------------------------------------


def test_a_cycle_that_is_not_there_at_a_second_look_does_not_count(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cleared(tree):
        for key, owners in (("1", "ab"), ("2", "ba")):
            for owner in owners:
                path = stand(tree, key, data=owner)
        assert len(deadlocks(budget=PATIENCE)) == 1
        looks = []

        def and_then_one_goes(*_: object, **__: object) -> object:
            looks.append(found())
            if len(looks) == 1:
                tree.client.delete(path)
                stand(tree, "2", data="a")
            return looks[-1]

        monkeypatch.setattr(wait_graph, "snapshot", and_then_one_goes)
        assert deadlocks() == []
        assert len(looks) == 2
        assert all(cycles(seen.locks) for seen in looks)
