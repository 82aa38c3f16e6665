"""The states of a contender, and what happens in which of them.

An event that a state does not name changes nothing. "Looks" means: lists the line, or joins anew if
the node belongs to an earlier session::

    NEW          Join                → JOINING, or PARKED without a connection
    PARKED       Connected           → JOINING
    JOINING      Created             → LOOKING, or for one who follows another of us BEHIND it, or
                                       READING_LINE; a missing line is made, and joined again
                 Disconnected        → FINDING: the node may be there or not
    FINDING      Connected           lists all that was acknowledged before
                 Listed              → IDENTIFYING the node with our prefix, or joins anew
    IDENTIFYING  NodeRead            looks
                 Disconnected        → FINDING
    READING_LINE LineRead            → BEHIND the neighbour with the number before ours, or looks
    LOOKING      Connected           looks
                 Listed              our turn            → HOLDING, or PROVING
                                     a neighbour ahead   → BEHIND
                                     another one ahead   → WAITING, or BUSY for one who tries only
                                     does not queue      → ASIDE
                                     the line is worn    → ASIDE, or CLEARING if nobody is in it
                                     another family      → JUDGING
                                     not in the list     joins anew
    JUDGING      NodeRead            looks, or → REFUSED
    PROVING      Proved              looks
    WAITING      Changed, Watched    looks; if the only one ahead is gone: HOLDING, or PROVING
    BEHIND       NeighbourLeft       → HOLDING if it hands over a grant that is valid; else looks
                 HandedOver          → HOLDING, as the caller does already
    ASIDE        Changed, Watched    → PEEKING
    PEEKING      Listed              → ASIDE, or joins anew where nobody is, or → CLEARING
    CLEARING     LineRead            removes the line, or → REFUSED
                 LineRemoved         joins anew, or → PEEKING
    HOLDING      Lapsed, Connected   → LOST if the session may have ended
                 Changed, Watched    → LOST if our own node is gone
                 HeldTooLong         → LOST, and the node is deleted; also if LOST before
                 FoundBroken         → LOST
                 Renewed             watches our own node; also WAITING for the only one ahead, or
                                     BEHIND, where no list shows the node
    JOINING      Leave               → LEAVING: the node is deleted as soon as it is known
    FINDING,     Leave               → SEARCHING for the node, to delete it
     IDENTIFYING
    LEAVING      Created             → LEFT
                 Disconnected        → SEARCHING
    SEARCHING    Connected           lists all that was acknowledged before
                 Listed, NodeRead,   → LEFT
                 Created
    any other    Leave               → LEFT; the node is deleted, the watch is taken back, and the
                                       neighbour gets the lock or looks for itself
    with a node  Disconnected        → LOOKING, unless granted
                 our node is gone    joins anew, unless granted
                 an unknown error    → REFUSED

`RULES` is the same table for `machine`: which method applies which event.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

from . import events as e


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
    #: The caller has left; the create is under way.
    LEAVING = auto()
    #: The caller has left; whether there is a node is being found out.
    SEARCHING = auto()
    LEFT = auto()


_WITH_NODE = (
    State.READING_LINE,
    State.LOOKING,
    State.JUDGING,
    State.PROVING,
    State.WAITING,
    State.BEHIND,
)
_ASIDE = (State.ASIDE, State.PEEKING, State.CLEARING)
_LEAVING = (State.LEAVING, State.SEARCHING, State.LEFT)

#: The table in the docstring: events → the states in which they change something → the method.
RULES: dict[type, dict[tuple[State, ...], str]] = {
    e.Join: {(State.NEW,): "_join"},
    e.Created: {
        (State.JOINING,): "_created",
        (State.LEAVING, State.SEARCHING): "_created_in_vain",
    },
    e.LineMade: {(State.JOINING,): "_line_made"},
    e.Listed: {
        (State.FINDING,): "_found",
        (State.LOOKING,): "_listed",
        (State.PEEKING,): "_peeked",
        (State.SEARCHING,): "_found_in_vain",
    },
    e.NodeRead: {
        (State.IDENTIFYING,): "_identified",
        (State.JUDGING,): "_judged",
        (State.SEARCHING,): "_read_in_vain",
    },
    e.LineRead: {(State.READING_LINE,): "_line_read", (State.CLEARING,): "_clear"},
    e.LineRemoved: {(State.CLEARING,): "_cleared"},
    e.Proved: {(State.PROVING,): "_look"},
    e.Changed: {
        (State.WAITING,): "_ahead_changed",
        (State.ASIDE,): "_first_changed",
        (*(s for s in _WITH_NODE if s is not State.WAITING), State.HOLDING): "_own_changed",
    },
    e.Watched: {
        (State.WAITING,): "_ahead_watched",
        (State.ASIDE,): "_first_watched",
        (*(s for s in _WITH_NODE if s is not State.WAITING), State.HOLDING): "_own_read",
    },
    e.NeighbourLeft: {(State.BEHIND,): "_neighbour_left"},
    e.HandedOver: {(State.BEHIND,): "_handed_over"},
    e.Renewed: {(State.WAITING, State.BEHIND, State.HOLDING): "_renewed"},
    e.Lapsed: {(State.HOLDING,): "_check"},
    e.HeldTooLong: {(State.HOLDING, State.LOST): "_held_too_long"},
    e.FoundBroken: {(State.HOLDING,): "_found_broken"},
    e.Disconnected: {
        (State.JOINING, State.IDENTIFYING): "_lose_reply",
        (*_WITH_NODE, State.HOLDING): "_disconnected",
        _ASIDE: "_disconnected_aside",
        (State.LEAVING,): "_search",
    },
    e.Connected: {
        (State.PARKED,): "_join_parked",
        (State.FINDING, State.SEARCHING): "_find",
        (State.LOOKING,): "_connected",
        (State.PEEKING,): "_peek",
        (State.HOLDING,): "_check",
    },
    e.Leave: {
        (State.JOINING,): "_leave_while_joining",
        (State.FINDING, State.IDENTIFYING): "_search",
        tuple(
            state
            for state in State
            if state not in (State.JOINING, State.FINDING, State.IDENTIFYING, *_LEAVING)
        ): "_leave",
    },
}


def methods_of(cls: type) -> list[dict[type, Any]]:
    """Return the methods of a class by state and event."""
    found: list[dict[type, Any]] = [{} for _ in range(len(State) + 1)]
    for event, names in RULES.items():
        for states, name in names.items():
            for state in states:
                found[state][event] = getattr(cls, name)
    return found
