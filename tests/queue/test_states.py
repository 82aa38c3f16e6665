"""The table of the states, in words and as `RULES`."""

from __future__ import annotations

from typing import get_args

import pytest

from distlock.queue import events as e
from distlock.queue import states
from distlock.queue.machine import Machine
from distlock.queue.states import RULES, State


@pytest.mark.parametrize("state", [state for state in State if state < State.HOLDING])
def test_the_docstring_has_a_row_for_each_state_that_waits(state: State) -> None:
    rows = [line.split()[0] for line in (states.__doc__ or "").splitlines() if line.strip()]
    assert state.name in (row.rstrip(",") for row in rows) or state is State.BUSY


@pytest.mark.parametrize("event", [event for event in RULES if event is not e.LineMade])
def test_the_docstring_names_each_event(event: type) -> None:
    assert event.__name__ in (states.__doc__ or "")


def test_each_event_has_a_rule() -> None:
    assert set(RULES) == set(get_args(e.Event))


def test_no_two_rules_are_for_one_event_in_one_state() -> None:
    for methods in RULES.values():
        named = [state for group in methods for state in group]
        assert len(named) == len(set(named))


def test_each_state_but_the_last_ends_by_leaving() -> None:
    leaves = {state for group in RULES[e.Leave] for state in group}
    assert set(State) - leaves == {State.LEAVING, State.SEARCHING, State.LEFT}


@pytest.mark.parametrize("event", RULES)
def test_each_rule_names_a_method(event: type) -> None:
    assert all(hasattr(Machine, name) for name in RULES[event].values())
