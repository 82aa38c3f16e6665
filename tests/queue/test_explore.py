"""No order of events breaks the wait queue; with any one of its old bugs, some order does.

`tests.queue.world` says what is modelled, `tests.queue.invariants` what must be true. The scopes
here are gone through to their ends, or to a depth that takes seconds; for longer runs there is
``python -m tests.queue.explore``. ``pytest tests/queue -rP`` prints how many states there were and
the shortest way to each harm.
"""

from __future__ import annotations

import pytest

from tests.queue.explore import SCOPES, Scope, explore
from tests.queue.invariants import violation
from tests.queue.mutations import MUTATIONS, Mutation
from tests.queue.server import serve
from tests.queue.steps import steps
from tests.queue.world import Faults, World


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_nothing_that_can_happen_breaks_the_queue(scope: Scope) -> None:
    found = explore(scope.beginning(), scope.depth)
    print(found)  # noqa: T201
    assert not found.trace
    assert found.complete or found.depth == scope.depth


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(one, marks=pytest.mark.deep if one.deep else (), id=str(one))
        for one in MUTATIONS
    ],
)
def test_an_old_bug_breaks_the_queue(mutation: Mutation) -> None:
    found = explore(mutation.beginning())
    print(found)  # noqa: T201
    assert found.trace
    assert mutation.harm in found.trace[-1]
    without = explore(mutation.scope.beginning(), found.depth)
    assert not without.trace


def test_answers_that_travel_for_a_while_change_nothing() -> None:
    """The reduction of `tests.queue.world` is checked without it, as far as that is possible."""
    scope = Scope(faults=Faults(cuts=1, leaves=1, releases=1), homes=(0, 0, 1))
    found = explore(scope.beginning(slow=True), 8)
    print(found)  # noqa: T201
    assert not found.trace


def test_a_world_is_not_changed_by_its_steps() -> None:
    world = Scope(faults=Faults(cuts=1, breaks=1)).beginning()
    for _ in range(12):
        key = world.key
        after = list(steps(world))
        assert world.key == key
        world = after[len(after) // 2][1]


def test_copies_are_alike_until_one_of_them_changes() -> None:
    world = Scope().beginning()
    _, world = next(steps(world))
    copy = world.copy()
    process = copy.own(0)
    assert copy.key == world.key
    serve(copy, process)
    assert copy.key != world.key
    assert violation(copy) is None


def test_worlds_with_other_contenders_differ() -> None:
    def joined(number: int) -> World:
        return list(steps(Scope(homes=(0, 1, 2)).beginning()))[number][1]

    assert joined(0).key != joined(1).key
