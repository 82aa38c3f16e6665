"""The states of a contender, and what happens in which of them: `RULES`.

A test compares these with all that a contender can do. `methods_of` makes of rules what a machine
looks up. An event that no rule names changes nothing, and is an error under test: `tests.kit.table`
checks each event of each machine, and the state after it.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import TYPE_CHECKING, Any, Final

from . import events as e

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Rule:
    """The way to apply an event in some states.

    :param method: what applies it; none: it comes too late, and changes nothing
    :param then: the states that may be next; none: the state stays
    """

    __slots__ = ("event", "method", "states", "then")

    def __init__(
        self, states: IntEnum | Sequence[IntEnum], event: type, method: str = "", *then: IntEnum
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


class State(IntEnum):
    """Where a contender is between joining and leaving."""

    #: Nothing has been sent.
    NEW = auto()
    #: It joins as soon as there is a connection.
    PARKED = auto()
    #: The create is under way.
    JOINING = auto()
    #: The answer to the create is lost; the list is under way, or there is no connection.
    FINDING = auto()
    #: The node that was found is being read.
    IDENTIFYING = auto()
    #: The line's own node is being read, to see whether the neighbour's number is of this line.
    READING_LINE = auto()
    #: The list is under way, or there is no connection.
    LOOKING = auto()
    #: A node of the other family is being read.
    JUDGING = auto()
    #: It is our turn; the session is being proven.
    PROVING = auto()
    #: It watches the one ahead.
    WAITING = auto()
    #: It waits for its neighbour of the same process.
    BEHIND = auto()
    #: Somebody is ahead, and the caller is about to leave.
    BUSY = auto()
    #: Without a node; it watches the first in line.
    ASIDE = auto()
    #: Without a node; the list is under way, or there is no connection.
    PEEKING = auto()
    #: Without a node; the worn line is being removed.
    CLEARING = auto()
    HOLDING = auto()
    LOST = auto()
    REFUSED = auto()
    #: The caller has left.
    LEFT = auto()


S = State
#: Without a node it joins; a reader in the place of a writer is refused when that one is lost.
_ANEW = (S.JOINING, S.REFUSED)
_LOOKS = (S.READING_LINE, S.LOOKING, S.JUDGING, S.PROVING)
_ASIDE = (S.ASIDE, S.PEEKING, S.CLEARING)
#: The outcomes, for the caller.
_OVER = (S.BUSY, S.LOST, S.REFUSED)

RULES: Final = (
    # Getting a node, also after a lost reply.
    Rule(S.NEW, e.Join, "_join", S.PARKED, *_ANEW),
    Rule(S.PARKED, e.Connected, "_enter", *_ANEW),
    Rule(S.JOINING, e.LineMade, "_line_made"),
    Rule(S.JOINING, e.Created, "_created", *_ANEW, S.READING_LINE, S.LOOKING, S.BEHIND, S.HOLDING),
    Rule((S.JOINING, S.IDENTIFYING), e.Disconnected, "_lose_reply", S.FINDING),
    Rule(S.FINDING, e.Connected, "_find"),
    Rule(S.FINDING, e.Listed, "_found", *_ANEW, S.IDENTIFYING),
    Rule(S.IDENTIFYING, e.NodeRead, "_identified", *_ANEW, S.LOOKING),
    # In line.
    Rule(S.READING_LINE, e.LineRead, "_line_read", S.LOOKING, S.BEHIND, S.HOLDING),
    Rule(S.LOOKING, e.Connected, "_connected", *_ANEW, S.LOOKING),
    Rule(
        S.LOOKING,
        e.Listed,
        "_listed",
        *(*_ANEW, S.LOOKING, S.JUDGING, S.PROVING, S.WAITING, S.BEHIND),
        *(S.BUSY, S.ASIDE, S.CLEARING, S.HOLDING),
    ),
    Rule(S.JUDGING, e.NodeRead, "_judged", S.LOOKING, S.REFUSED),
    Rule(S.PROVING, e.Proved, "_look", S.LOOKING),
    Rule(_LOOKS, e.Changed, "_own_changed"),
    Rule(_LOOKS, e.Watched, "_own_read"),
    Rule(
        S.WAITING,
        e.Changed,
        "_ahead_changed",
        *(S.JOINING, S.LOOKING, S.PROVING, S.WAITING, S.HOLDING),
    ),
    Rule(S.WAITING, e.Watched, "_ahead_watched", *_ANEW, S.LOOKING, S.WAITING),
    Rule(S.BEHIND, e.NeighbourLeft, "_neighbour_left", S.LOOKING, S.HOLDING),
    Rule(S.BEHIND, e.HandedOver, "_handed_over", S.HOLDING),
    Rule(S.BEHIND, e.Changed, "_own_changed", S.JOINING, S.BEHIND),
    Rule(S.BEHIND, e.Watched, "_own_read", S.JOINING, S.BEHIND),
    Rule((*_LOOKS, S.WAITING, S.BEHIND), e.Disconnected, "_disconnected", S.LOOKING),
    Rule((S.WAITING, S.BEHIND, S.HOLDING), e.Renewed, "_renewed"),
    # Without a node, behind others or before a line that has to begin anew.
    Rule(S.ASIDE, e.Changed, "_first_changed", S.ASIDE, S.PEEKING),
    Rule(S.ASIDE, e.Watched, "_first_watched", S.ASIDE, S.PEEKING, S.REFUSED),
    Rule(_ASIDE, e.Disconnected, "_disconnected_aside", S.PEEKING),
    Rule(S.PEEKING, e.Connected, "_peek"),
    Rule(S.PEEKING, e.Listed, "_peeked", *_ANEW, S.BUSY, S.ASIDE, S.CLEARING),
    Rule(S.CLEARING, e.LineRead, "_clear", *_ANEW, S.CLEARING),
    Rule(S.CLEARING, e.LineRemoved, "_cleared", *_ANEW, S.PEEKING),
    # Granted.
    Rule(S.HOLDING, e.Disconnected, "_disconnected"),
    Rule(S.HOLDING, e.Connected, "_check", S.HOLDING, S.LOST),
    Rule(S.HOLDING, e.Lapsed, "_check", S.HOLDING, S.LOST),
    Rule(S.HOLDING, e.Changed, "_own_changed", S.HOLDING, S.LOST),
    Rule(S.HOLDING, e.Watched, "_own_read", S.HOLDING, S.LOST),
    Rule((S.HOLDING, S.LOST), e.GiveUp, "_give_up", S.LOST),
    # Leaving.
    Rule(
        (S.NEW, S.PARKED, *_LOOKS, S.WAITING, S.BEHIND, *_ASIDE, S.HOLDING, *_OVER),
        e.Leave,
        "_leave",
        S.LEFT,
    ),
    Rule((S.JOINING, S.FINDING, S.IDENTIFYING), e.Leave, "_leave_unanswered", S.LEFT),
    # Too late, or for all of the session.
    Rule(_OVER, e.Connected),
    Rule((S.PARKED, S.FINDING, *_OVER), e.Disconnected),
    Rule((S.JOINING, S.FINDING, S.IDENTIFYING, *_LOOKS, *_ASIDE, *_OVER), e.Renewed),
    Rule((S.JOINING, S.PEEKING, S.CLEARING, *_OVER), e.Changed),
    Rule((S.JOINING, S.PEEKING, S.CLEARING, *_OVER), e.Watched),
    Rule((S.JOINING, S.REFUSED), e.Listed),
    Rule(S.REFUSED, e.LineMade),
    Rule([s for s in S if s not in (S.NEW, S.HOLDING, S.LEFT)], e.Lapsed),
    Rule((S.HOLDING, S.LOST), e.NeighbourLeft),
)
