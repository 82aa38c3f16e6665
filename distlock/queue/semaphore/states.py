"""The states of a semaphore's contender, and what happens in which of them.

An event that a state does not name changes nothing. "Our turn" means: first in the queue. The queue
has a machine of its own, whose `Grant`, `Lose` and `Refuse` are events here::

    NEW          Join                → COUNTING, and comes to the queue in the same go
    COUNTING     LimitRead           our turn             → MAKING
                                     not our turn         → QUEUEING
                                     too few are free     → BUSY for one who tries only
    QUEUEING     Grant               → MAKING, or COUNTING again for one who tries only
    MAKING       Created             notes the node, or the error
                 Listed, the last    all permits are there, and within the limit
                                                          → HOLDING, or PROVING
                                     beyond the limit     → WAITING, or BUSY
                                     one is not there     makes all of them anew
                                     no node of permits   makes it, and all of them anew
                 Disconnected        → FINDING: some may be there
    FINDING      Connected           lists all that was acknowledged before
                 Listed              deletes ours, and makes all of them anew
    LOOKING      Connected           lists
                 Listed              as in MAKING
    PROVING      Proved              → LOOKING
    WAITING      NamesChanged,       → LOOKING
                  LimitChanged
                 Listed              as in MAKING
    COUNTING,    Lose                comes to the queue anew; MAKING and FINDING do so later
     LOOKING,    Connected           the same if the queue's node was of an earlier session
     PROVING,
     WAITING
    COUNTING,    Refuse              → REFUSED
     QUEUEING
    MAKING       Leave               → LEAVING: a node is deleted as soon as it is known
    FINDING      Leave               → SEARCHING for the nodes, to delete them
    LEAVING      Created, the last   → LEFT
                 Disconnected        → SEARCHING
    SEARCHING    Connected           lists all that was acknowledged before
                 Listed              → LEFT
    any other    Leave               → LEFT; the nodes are deleted, the watches are taken back
    with nodes   Disconnected        → LOOKING, unless granted
                 an unknown error    → REFUSED
                 a limit below what is wanted             → REFUSED

A caller may give its permits back one after the other, and may lose one of them. So from the grant
on each permit is a contender of its own, a `distlock.queue.machine`, and this one has nothing to do
any more but to leave.

`RULES` is the same table for `machine`: which method applies which event.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from distlock.queue import events as e

from . import events as s


class SemaphoreState(Enum):
    """Where a semaphore's contender is between joining and leaving."""

    #: Nothing has been sent.
    NEW = "new"
    #: The limit is being read, or there is no connection; it may be our turn already.
    COUNTING = "counting"
    #: It waits for its turn.
    QUEUEING = "queueing"
    #: It is our turn; the creates are under way, and a list.
    MAKING = "making"
    #: The answer to a create is lost; the list is under way, or there is no connection.
    FINDING = "finding"
    #: The list is under way, or there is no connection.
    LOOKING = "looking"
    #: The permits are within the limit; the session is being proven.
    PROVING = "proving"
    #: The permits are beyond the limit; it watches them and the limit.
    WAITING = "waiting"
    #: Too few permits are free, and the caller is about to leave.
    BUSY = "busy"
    HOLDING = "holding"
    REFUSED = "refused"
    #: The caller has left; creates are under way.
    LEAVING = "leaving"
    #: The caller has left; whether there are nodes is being found out.
    SEARCHING = "searching"
    LEFT = "left"


_S = SemaphoreState
_WITH_NODES = (_S.LOOKING, _S.PROVING, _S.WAITING)

#: The table in the docstring: events → the states in which they change something → the method.
RULES: dict[type, dict[tuple[SemaphoreState, ...], str]] = {
    e.Join: {(_S.NEW,): "_come_to_queue"},
    e.Grant: {(_S.QUEUEING,): "_have_turn"},
    e.Lose: {(_S.COUNTING, *_WITH_NODES): "_start_anew"},
    e.Refuse: {(_S.COUNTING, _S.QUEUEING): "_refused"},
    s.LimitRead: {
        (_S.COUNTING,): "_counted",
        (_S.QUEUEING, _S.MAKING, *_WITH_NODES): "_limit_read",
    },
    s.LimitChanged: {_WITH_NODES: "_limit_changed"},
    s.NamesChanged: {_WITH_NODES: "_names_changed"},
    e.LineMade: {(_S.COUNTING, _S.QUEUEING, _S.MAKING): "_line_made"},
    e.Created: {(_S.MAKING,): "_created", (_S.LEAVING,): "_created_in_vain"},
    e.Listed: {
        (_S.MAKING,): "_made",
        (_S.FINDING,): "_found",
        _WITH_NODES: "_listed",
        (_S.SEARCHING,): "_found_in_vain",
    },
    e.Proved: {(_S.PROVING,): "_look"},
    e.Disconnected: {
        (_S.MAKING,): "_lose_reply",
        _WITH_NODES: "_disconnected",
        (_S.LEAVING,): "_search",
    },
    e.Connected: {
        (_S.COUNTING,): "_count",
        (_S.FINDING, _S.SEARCHING): "_find",
        (_S.LOOKING,): "_look",
    },
    e.Leave: {
        (_S.MAKING,): "_leave_while_making",
        (_S.FINDING,): "_search",
        tuple(
            state
            for state in _S
            if state not in (_S.MAKING, _S.FINDING, _S.LEAVING, _S.SEARCHING, _S.LEFT)
        ): "_leave",
    },
}


def methods_of(cls: type) -> dict[tuple[SemaphoreState, type], Any]:
    """Return the methods of a class by state and event."""
    return {
        (state, event): getattr(cls, name)
        for event, names in RULES.items()
        for states, name in names.items()
        for state in states
    }
