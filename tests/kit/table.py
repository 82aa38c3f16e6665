"""Holds each machine of this process to its table of states, in every test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlock.queue.machine import Machine
from distlock.queue.semaphore import Permit, Turn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import IntEnum

    from distlock.queue.states import Rule

    Transition = tuple[IntEnum, type, IntEnum]

#: What was found since the last test: on any thread, so an exception would not fail the test.
faults: list[str] = []


def hold_machines() -> None:
    """Check each event of each machine, and the state after it, from now on."""
    unchecked = Machine.apply
    known = {
        cls: {(s, rule.event): rule.then or (s,) for rule in cls.rules for s in rule.states}
        for cls in (Machine, Turn, Permit)
    }

    def checked(self: Any, event: Any) -> Any:
        before = self.state
        effects = unchecked(self, event)
        allowed = known.get(type(self))  # that of no mutation
        if allowed is not None and self.state not in allowed.get((before, type(event)), ()):
            faults.append(f"{before.name} gets {event} and is {self.state.name} then")
        return effects

    Machine.apply = checked  # type: ignore[method-assign]


def transitions(rules: Sequence[Rule]) -> set[Transition]:
    """Return all transitions that the rules allow."""
    return {
        (state, rule.event, then)
        for rule in rules
        for state in rule.states
        for then in rule.then or (state,)
    }
