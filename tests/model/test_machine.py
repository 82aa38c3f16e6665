"""No order of events breaks the line; without any one of its guards, some order does.

The first half goes through *every* world that can be reached within the limits of a scope, most to
the end and the largest to a depth, and finds that never two clients believe that they hold, that
tokens rise, and that no client forgets a node of its. The second half takes one guard out of the
machine and expects the shortest way to the harm: this is what shows that the first half can fail.
(Among them CURATOR-498, -604 and -678.)

`pytest tests/model -rP` prints the ways. The guards and the lines of the code that they stand for
are in `tests.model.machine.Guards`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tests.model.explorer import Exploration, explore
from tests.model.machine import Guards, Machine
from tests.model.world import Client, Node, World, beginning

LEADER = ("leader",)
TO_THE_END = 1000

#: What may happen in a scope, and how many steps are looked ahead.
SCOPES: dict[str, tuple[dict[str, Any], int]] = {
    "three clients that come and go": ({"clients": 3, "servers": LEADER, "leaves": 3}, TO_THE_END),
    "two clients, a lagging follower, a cut": ({"clients": 2, "cuts": 1, "leaves": 2}, TO_THE_END),
    "two clients, time, expiry": ({"clients": 2, "servers": LEADER, "ticks": 3}, TO_THE_END),
    "two clients, a partitioned follower, expiry": ({"clients": 2, "ticks": 3}, 14),
    "two clients, all at once": ({"clients": 2, "ticks": 4, "cuts": 1, "leaves": 1}, 10),
    "three clients, all at once": ({"clients": 3, "ticks": 3, "cuts": 1, "leaves": 2}, 8),
}

ONE = {"clients": 1, "leaves": 1}
ONE_CUT = {"clients": 1, "cuts": 1, "leaves": 1}
TWO_IN_TIME = {"clients": 2, "servers": LEADER, "ticks": 3}
THREE = {"clients": 3, "servers": LEADER, "leaves": 1}
TWO_ON_FOLLOWERS = {"clients": 2, "ticks": 3}

#: The guard that is taken out, where, and the harm.
HARMS = [
    ("only_nodes_of_this_session", TWO_IN_TIME, "A and B hold at the same time"),
    ("owner_of_found_node_is_read", TWO_IN_TIME, "A and B hold at the same time"),
    ("look_again_when_predecessor_goes", THREE, "hold at the same time"),
    ("deadline_from_send_time", TWO_IN_TIME, "A and B hold at the same time"),
    ("check_reads_the_clock", TWO_IN_TIME, "A and B hold at the same time"),
    ("heartbeat_reaches_the_leader", TWO_ON_FOLLOWERS, "A and B hold at the same time"),
    ("sync_after_lost_reply", ONE_CUT, "A has forgotten its node"),
    ("late_create_is_deleted", ONE, "A has forgotten its node"),
    ("delete_is_sent_again", ONE_CUT, "A has forgotten its node"),
]


def show(scope: dict[str, Any], found: Exploration) -> None:
    limits = ", ".join(f"{name}={value}" for name, value in scope.items())
    print(f"{limits}: {found.worlds} worlds, {found.depth} steps")  # noqa: T201
    for number, step in enumerate(found.trace, start=1):
        print(f"{number:3}. {step}")  # noqa: T201


@pytest.mark.parametrize(("scope", "depth"), SCOPES.values(), ids=SCOPES)
def test_nothing_that_can_happen_breaks_the_line(scope: dict[str, Any], depth: int) -> None:
    found = explore(Machine(Guards()), beginning(**scope), depth)
    show(scope, found)
    assert not found.trace
    assert found.complete == (depth == TO_THE_END)


@pytest.mark.parametrize(("guard", "scope", "harm"), HARMS, ids=[guard for guard, *_ in HARMS])
def test_without_this_guard_the_line_breaks(guard: str, scope: dict[str, Any], harm: str) -> None:
    found = explore(Machine(Guards(**{guard: False})), beginning(**scope))
    show(scope, found)
    assert found.trace
    assert harm in found.trace[-1]


def test_no_guard_is_without_its_harm() -> None:
    assert {guard for guard, *_ in HARMS} == {field.name for field in fields(Guards)}


def test_a_token_that_falls_would_be_seen() -> None:
    """Two holders at once are always seen before it, so no guard's harm shows this."""
    holder = Client(state="holding", deadline=1, session=1, node=Node(3, 0, 1, 1))
    world = World(clients=(holder,), highest=4)
    assert Machine(Guards()).violation(world) == "A holds with token 3 after 4"
