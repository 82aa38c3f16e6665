"""The states of a semaphore's contender, and what happens in which of them: `RULES`.

The queue has a machine of its own, whose `Grant`, `Lose` and `Refuse` are events here. From each
state, what leads where; a test compares it with the rules::

    NEW          Join → COUNTING; Leave → LEFT
    COUNTING     LimitRead → QUEUEING, MAKING, BUSY, REFUSED; Refuse → REFUSED; Leave → LEFT
    QUEUEING     Refuse → REFUSED; Grant → COUNTING, MAKING; Leave → LEFT
    MAKING       Listed → COUNTING, MAKING, PROVING, WAITING, BUSY, HOLDING, REFUSED;
                 Disconnected → FINDING; Leave → LEAVING, LEFT
    FINDING      Listed → COUNTING, MAKING; Leave → SEARCHING
    LOOKING      Lose → COUNTING; Connected → COUNTING, LOOKING; Listed → COUNTING, MAKING,
                 PROVING, WAITING, BUSY, HOLDING, REFUSED; PermitsChanged → COUNTING, LOOKING;
                 Leave → LEFT
    PROVING      Lose → COUNTING; Proved → LOOKING; Listed → COUNTING, MAKING, PROVING, WAITING,
                 BUSY, HOLDING, REFUSED; PermitsChanged → COUNTING, LOOKING;
                 Disconnected → LOOKING; Leave → LEFT
    WAITING      Lose → COUNTING; Listed → COUNTING, MAKING, PROVING, WAITING, BUSY, HOLDING,
                 REFUSED; PermitsChanged → COUNTING, LOOKING; Disconnected → LOOKING; Leave → LEFT
    BUSY         Leave → LEFT
    HOLDING      Leave → LEFT
    REFUSED      Leave → LEFT
    LEAVING      Created → LEAVING, LEFT; Disconnected → SEARCHING
    SEARCHING    Listed → LEFT
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from distlock.queue import events as e
from distlock.queue.table import Rule

from . import events as s


class SemaphoreState(IntEnum):
    """Where a semaphore's contender is between joining and leaving."""

    #: Nothing has been sent.
    NEW = auto()
    #: The limit is being read, or there is no connection; it may be our turn already.
    COUNTING = auto()
    #: It waits for its turn.
    QUEUEING = auto()
    #: It is our turn; the creates are under way, and a list.
    MAKING = auto()
    #: The answer to a create is lost; the list is under way, or there is no connection.
    FINDING = auto()
    #: The list is under way, or there is no connection.
    LOOKING = auto()
    #: The permits are within the limit; the session is being proven.
    PROVING = auto()
    #: The permits are beyond the limit; it watches them and the limit.
    WAITING = auto()
    #: Too few permits are free, and the caller is about to leave.
    BUSY = auto()
    HOLDING = auto()
    REFUSED = auto()
    #: The caller has left; creates are under way.
    LEAVING = auto()
    #: The caller has left; whether there are nodes is being found out.
    SEARCHING = auto()
    LEFT = auto()


S = SemaphoreState
_AMONG = (S.LOOKING, S.PROVING, S.WAITING)
_LEAVING = (S.LEAVING, S.SEARCHING)
#: The outcomes, for the caller. From the grant on each permit is a contender of its own, a
#: `distlock.queue.machine`: a caller may give them back one by one, and may lose one of them.
_OVER = (S.BUSY, S.HOLDING, S.REFUSED)
#: A list shows whether all permits are there, how many others are, and what the limit allows.
_SEEN = (S.COUNTING, S.MAKING, S.PROVING, S.WAITING, *_OVER)

_RULES = (
    Rule(S.NEW, e.Join, "_come_to_queue", S.COUNTING),
    # In the queue.
    Rule(S.COUNTING, e.Connected, "_count"),
    Rule(S.COUNTING, s.LimitRead, "_counted", S.QUEUEING, S.MAKING, S.BUSY, S.REFUSED),
    Rule((S.COUNTING, *_AMONG), e.Lose, "_start_anew", S.COUNTING),
    Rule((S.COUNTING, S.QUEUEING), e.Refuse, "_refused", S.REFUSED),
    Rule((S.COUNTING, S.QUEUEING, S.MAKING), e.LineMade, "_line_made"),
    Rule(S.QUEUEING, e.Grant, "_have_turn", S.COUNTING, S.MAKING),
    # Making the permits.
    Rule((S.QUEUEING, S.MAKING, *_AMONG), s.LimitRead, "_limit_read"),
    Rule(S.MAKING, e.Created, "_created"),
    Rule(S.MAKING, e.Listed, "_made", *_SEEN),
    Rule(S.MAKING, e.Disconnected, "_lose_reply", S.FINDING),
    Rule((S.FINDING, S.SEARCHING), e.Connected, "_find"),
    Rule(S.FINDING, e.Listed, "_found", S.COUNTING, S.MAKING),
    # Among the permits.
    Rule(S.LOOKING, e.Connected, "_look", S.COUNTING, S.LOOKING),
    Rule(S.PROVING, e.Proved, "_look", S.LOOKING),
    Rule(_AMONG, e.Listed, "_listed", *_SEEN),
    Rule(_AMONG, s.PermitsChanged, "_changed", S.COUNTING, S.LOOKING),
    Rule(_AMONG, e.Disconnected, "_disconnected", S.LOOKING),
    # Leaving.
    Rule((S.NEW, S.COUNTING, S.QUEUEING, *_AMONG, *_OVER), e.Leave, "_leave", S.LEFT),
    Rule(S.MAKING, e.Leave, "_leave_while_making", S.LEAVING, S.LEFT),
    Rule(S.FINDING, e.Leave, "_search", S.SEARCHING),
    Rule(S.LEAVING, e.Created, "_created_in_vain", S.LEAVING, S.LEFT),
    Rule(S.LEAVING, e.Disconnected, "_search", S.SEARCHING),
    Rule(S.SEARCHING, e.Listed, "_found_in_vain", S.LEFT),
    # Too late, or again.
    Rule((*_LEAVING, S.LEFT), e.Leave),
    Rule((*_OVER, S.LEFT), s.PermitsChanged),
    Rule((*_OVER, S.LEFT), e.Created),
)
#: The session's events, which come to all, the queue's, and answers from an earlier go.
_ANY_TIME = (
    *(e.Connected, e.Disconnected, e.Renewed, e.Grant, e.Lose, e.Refuse),
    *(e.Listed, e.LineMade, e.Proved, s.LimitRead),
)
_KNOWN = {(state, rule.event) for rule in _RULES for state in rule.states}
RULES: Final = _RULES + tuple(
    Rule([state for state in S if state is not S.NEW and (state, event) not in _KNOWN], event)
    for event in _ANY_TIME
)
