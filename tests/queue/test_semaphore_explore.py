"""No order of events breaks a semaphore; with any one of its old bugs, some order does.

For longer runs there is ``python -m tests.queue.semaphore_explore``. ``pytest -rP`` prints how many
states there were and the shortest way to each harm.
"""

from __future__ import annotations

import pytest

from tests.queue.semaphore_explore import SCOPES, Scope, explore
from tests.queue.semaphore_mutations import MUTATIONS, Mutation


@pytest.mark.deep
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_nothing_that_can_happen_breaks_a_semaphore(scope: Scope) -> None:
    found = explore(scope.beginning(), scope.depth)
    print(found)  # noqa: T201
    assert not found.trace
    assert found.complete or found.depth == scope.depth


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_bug_breaks_a_semaphore(mutation: Mutation) -> None:
    found = explore(mutation.scope.beginning(mutation.bugs))
    print(found)  # noqa: T201
    assert found.trace
    assert mutation.harm in found.trace[-1]
    without = explore(mutation.scope.beginning(), found.depth)
    assert not without.trace
