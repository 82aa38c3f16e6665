"""The tables of states say what the machines do, no more and no less."""

from __future__ import annotations

import pytest

from distlock.queue import events as e
from distlock.queue import policies
from distlock.queue.machine import Machine
from distlock.queue.semaphore import Permit, Turn
from distlock.queue.states import RULES, State
from tests.kit import table
from tests.kit.helpers import without_garbage_collection
from tests.queue import alone
from tests.queue.explore import DOWNGRADED


@without_garbage_collection()
def test_the_rules_are_all_that_a_contender_can_do() -> None:
    found = alone.transitions(policies.MUTEX, 6)
    found |= alone.transitions(policies.MUTEX, 6, max_waiters=0)
    found |= alone.transitions(policies.MUTEX, 5, revocable=True)
    found |= alone.transitions(policies.MUTEX, 5, revocable=True, max_waiters=0)
    found |= alone.transitions(DOWNGRADED, 6)
    assert found == table.transitions(RULES)


@pytest.mark.parametrize("machine", [Machine, Turn, Permit])
def test_no_two_rules_are_for_one_event_in_one_state(machine: type[Machine]) -> None:
    pairs = [(state, rule.event) for rule in machine.rules for state in rule.states]
    assert len(pairs) == len(set(pairs))


def test_an_event_that_a_state_does_not_know_is_a_fault() -> None:
    machine = alone.beginning(policies.MUTEX).contenders[alone.OUR]
    assert machine.apply(e.Proved()) == ()
    assert [fault.split(",")[0] for fault in table.faults] == ["NEW gets Proved() and is NEW then"]
    table.faults.clear()


def test_a_state_that_the_table_does_not_allow_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = alone.beginning(policies.MUTEX).contenders[alone.OUR]
    method = lambda self, _: setattr(self, "state", State.HOLDING)  # noqa: E731
    monkeypatch.setitem(Machine._methods[State.NEW], e.Join, method)
    machine.apply(e.Join())
    assert len(table.faults) == 1
    assert "HOLDING" in table.faults.pop()
