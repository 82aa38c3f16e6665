"""The table of a semaphore's states, in words and as `RULES`."""

from __future__ import annotations

from typing import get_args

import pytest

from distlock.queue import events as e
from distlock.queue.semaphore import events as s
from distlock.queue.semaphore import states as semaphore_states
from distlock.queue.semaphore.events import At
from distlock.queue.semaphore.states import RULES, SemaphoreState


def test_the_docstring_has_a_row_for_each_state_that_waits() -> None:
    text = semaphore_states.__doc__ or ""
    rows = {line.split()[0].rstrip(",") for line in text.splitlines() if line.strip()}
    at_rest = {SemaphoreState.BUSY, SemaphoreState.HOLDING, SemaphoreState.REFUSED}
    assert {state.name for state in set(SemaphoreState) - at_rest} - rows == {"LEFT"}


@pytest.mark.parametrize("event", [event for event in RULES if event is not e.LineMade])
def test_the_docstring_names_each_event(event: type) -> None:
    assert event.__name__ in (semaphore_states.__doc__ or "")


def test_no_two_rules_are_for_one_event_in_one_state() -> None:
    for methods in RULES.values():
        named = [state for group in methods for state in group]
        assert len(named) == len(set(named))


def test_each_state_but_the_last_ends_by_leaving() -> None:
    leaves = {state for group in RULES[e.Leave] for state in group}
    last = {SemaphoreState.LEAVING, SemaphoreState.SEARCHING, SemaphoreState.LEFT}
    assert set(SemaphoreState) - leaves == last


def test_each_event_of_the_caller_and_the_session_has_a_rule() -> None:
    assert set(get_args(s.Event)) - set(RULES) == {At, e.Renewed}
