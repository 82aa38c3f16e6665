"""Two servers get the same requests, and are compared after each; hypothesis chooses the requests.

What is asked is up to a subclass.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.testing.sides import World

sessions = st.sampled_from([0, 1])
names = st.sampled_from(["a", "b"])
#: Which of the nodes there are, in the order of their paths; the first is the root of the test.
places = st.integers(0, 6)
versions = st.sampled_from([-1, -1, 0, 1])
data = st.binary(max_size=4)


class Compared(RuleBasedStateMachine):
    """Two worlds that must not differ."""

    #: How often a session expires or loses its connection in a run: that takes its time.
    most_breaks = 3
    worlds: list[World]

    def begin_at(self, root: str) -> None:
        """Begin with two worlds that have no node yet."""
        self.there, self.gone = [root], f"{root}/never"
        self.breaks = 0

    def path(self, place: int) -> str:
        """Return the path of a node that there is, or of one that there has been."""
        return self.there[place % len(self.there)] if place < 6 else self.gone

    @precondition(lambda self: self.breaks < self.most_breaks)
    @rule(session=sessions)
    def expire(self, session: int) -> None:
        self.breaks += 1
        for world in self.worlds:
            world.sides[session].expire()

    @precondition(lambda self: self.breaks < self.most_breaks)
    @rule(session=sessions)
    def lose_the_connection(self, session: int) -> None:
        self.breaks += 1
        for world in self.worlds:
            world.sides[session].drop()

    @invariant()
    def they_are_alike(self) -> None:
        assert self.worlds[0].events() == self.worlds[1].events()
        trees = [world.tree() for world in self.worlds]
        assert trees[0] == trees[1]
        self.there = sorted(trees[0])

    def teardown(self) -> None:
        for world in getattr(self, "worlds", ()):
            for side in world.sides:
                side.client.say_goodbye(1)


def compare(machine: Any) -> None:
    """Let hypothesis ask."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
