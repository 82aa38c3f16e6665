"""A table of states: what applies an event in a state, and which states may be next.

The rooms' `states` have the tables. `methods_of` makes of one what its machine looks up. An event
that no rule names changes nothing, and is an error under test: `tests.kit.table` checks each event
of each machine, and the state after it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Rule:
    """The way to apply an event in some states.

    :param method: what applies it; none: it comes too late, and changes nothing
    :param then: the states that may be next; none: the state stays
    """

    __slots__ = ("event", "method", "states", "then")

    def __init__(
        self,
        states: IntEnum | Sequence[IntEnum],
        event: type,
        method: str = "",
        *then: IntEnum,
    ) -> None:
        self.states = (states,) if isinstance(states, IntEnum) else tuple(states)
        self.event = event
        self.method = method
        self.then = then


def methods_of(
    cls: type, states: type[IntEnum], rules: Sequence[Rule]
) -> list[dict[type, Callable[[Any, Any], None]]]:
    """Return the methods of a class by state and event. The numbers of states begin at 1."""
    found: list[dict[type, Any]] = [{} for _ in range(len(states) + 1)]
    for rule in rules:
        for state in rule.states if rule.method else ():
            found[state][rule.event] = getattr(cls, rule.method)
    return found
