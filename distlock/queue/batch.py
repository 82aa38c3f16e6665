"""Batches: one node in line for several waiters of a process, who have the lock in turns.

With ``handoff=N`` a process keeps its node until N of its waiters have had the lock, or none is
left, before the next process gets its turn. So N holds cost one pair of writes, and the others wait
for up to N holds instead of one. In the process itself it is first come, first served.

All holds of a batch are on one node and have one fencing token. No integer can tell them apart: the
token of a node is its czxid, and the next node, of another process, may have the very next one
before the batch begins, so between the two there is none left. `Hold.turn` orders the holds within
a batch, and a fenced write with a hold whose turn is over, while a later one has begun, is refused
before it is sent (`Hold.superseded`).

The node tells of whoever stood first when it was made, with an owner id of its own: who really
holds changes unseen, so a look for deadlocks must not believe it.

What a caller does here may be interrupted at any line, and is then done again by its `leave`. So
one function, `Batch._advance`, looks at what there is and does what is due; and what stands in line
is made to match that on the connection thread, where no exception of a caller can land.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakValueDictionary

from .contender import Place
from .handoff import MutexPlace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.dispatch import Signal

    from distlock.keys.znodes import NodeName
    from distlock.session.session import Session


def check_handoff(turns: object, *, fair: bool, revocable: bool) -> None:
    """Refuse a ``handoff=`` that cannot be.

    :raises ValueError: with what to do instead
    """
    if type(turns) is not int or turns < 0:
        raise ValueError(f"handoff= is a number of waiters, 0 or more, not {turns!r}.")
    if turns and not fair:
        raise ValueError("handoff= needs the queue that fair=False does without; choose one.")
    if turns and revocable:
        raise ValueError(
            "With handoff= one node serves several holders in turns, so none of them can be asked "
            "to leave; use on_revoke= without it."
        )


def _of_carrier(name: str, before: object) -> Any:
    """Make a property that is the carrier's, or `before` there is one; what is set is ignored."""

    def of(seat: Seat) -> Any:
        return before if seat.carrier is None else getattr(seat.carrier, name)

    return property(of, lambda *_: None)


class Seat(Place):
    """The place of one who waits for its turn in a batch, and then has it.

    :param turns: how many turns a batch has
    """

    ahead = _of_carrier("ahead", None)
    was_in_line = _of_carrier("was_in_line", before=False)
    asked_at = _of_carrier("asked_at", 0.0)
    head = _of_carrier("head", "")

    def __init__(self, session: Session, path: str, *, turns: int, **options: Any) -> None:
        #: Whose node it has, or waits for.
        self.carrier: Carrier | None = None
        self.turns = turns
        #: The how many-th turn on its node it has had, from 1.
        self.turn = 0
        self._told = False
        super().__init__(session, path, **options)
        self._batch = _batch_at(session, path)

    @property
    def trying(self) -> bool:
        """Whether it does not wait."""
        return self._try_only

    @property
    def over(self) -> bool:
        """Whether it waits no more."""
        return self.granted or self.left

    def join(self) -> None:
        self.session.heartbeat.attend(self)
        self._batch.enter(self)

    def leave(self) -> None:
        if self.granted:
            self.lost  # noqa: B018 - settles it: a lost node is not handed on
        self.left = True
        self.session.heartbeat.dismiss(self)
        self._batch.leave(self)

    @property
    def lost(self) -> bool:
        # The carrier stands on the same node, by the same lease.
        if self.granted and not self.left and (self.carrier is None or self.carrier.lost):
            self._lose("session" if self.carrier is None else self.carrier.lost_reason)
        return self._lost

    def lose(self) -> None:
        super().lose()
        if self.carrier is not None:
            self.carrier.lose()

    def _give_up(self) -> None:
        # With its node, since what has the next turn on it has the same fencing token.
        if self.granted and not self.left and self.carrier is not None:
            self._lose("max_hold")
            self.carrier.lose()
            self._batch.news()
            self.session.heartbeat.hurry()

    def deadline_renewed(self) -> None:
        """The carrier watches the node."""

    def new_carrier(self, batch: Batch) -> Carrier:
        """Return a place whose node says what one of this seat would say."""
        data = json.dumps({**json.loads(self._data or b"{}"), "owner": uuid4().hex})
        return Carrier(
            self.session, self.path, key=self.key, data=data.encode(), settled=batch.news
        )

    def take_turn(self, carrier: Carrier) -> None:
        """Have the lock; `settle` is to follow."""
        self.carrier = carrier
        self.node = carrier.node
        self.epoch = carrier.epoch
        self.turn = carrier.turns + 1
        self.granted = True

    @property
    def superseded(self) -> bool:
        return self.left and self.carrier is not None and self.carrier.turns > self.turn

    def settle(self) -> None:
        """Wake the one who waits, once."""
        if not self._told:
            self._settled()
            self._told = True


class Carrier(MutexPlace):
    """A place in line for a batch. It is settled also when it knows whom it waits for."""

    #: Who waited for an earlier one is behind somebody until the line says otherwise.
    queues = False
    #: Whose turn it is, and the how many-th.
    turn: Seat | None = None
    turns = 0

    def _wait_behind(self, line: list[NodeName], blocking: NodeName) -> None:
        super()._wait_behind(line, blocking)
        self._settled()

    def _step_aside(self, line: list[NodeName]) -> None:
        super()._step_aside(line)
        self._settled()

    def _stand_behind(self, before: MutexPlace) -> None:
        super()._stand_behind(before)
        self._settled()


class Batch:
    """Who of this process waits for turns at one lock, and the places in line that carry them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # Reentrant, for a signal handler that takes a lock on top of code that does.
        self._lock = threading.RLock()
        self._waiting: deque[Seat] = deque()
        self._carrier: Carrier | None = None
        #: The carrier of the next batch: it joins the line when half of this one is over.
        self._next: Carrier | None = None
        #: Who has joined the line and not left it; changed on the connection thread only.
        self._joined: set[Carrier] = set()

    def enter(self, seat: Seat) -> None:
        """Wait as the last."""
        with self._lock:
            self._waiting.append(seat)
            told = self._advance()
            seat.carrier = seat.carrier or self._carrier
        self._tell(told)

    def leave(self, seat: Seat) -> None:
        """Wait no more, or end the turn and let the next one have it."""
        with self._lock:
            if not seat.granted:
                with suppress(ValueError):
                    self._waiting.remove(seat)
            told = self._advance()
        self._tell(told)

    def news(self) -> None:
        """A carrier has the lock, or has lost it, or knows its place in line, or has failed."""
        with self._lock:
            told = self._advance()
            if self._carrier is not None and self._carrier.ahead:
                told = [*told, *(seat for seat in self._waiting if seat.trying)]
        self._tell(told)

    def _carrier_changed(self, _: Signal) -> None:
        self.news()

    def _advance(self) -> Sequence[Seat]:
        """Do what is due, and return who is to be told of it."""
        waiting, carrier = self._waiting, self._carrier
        while waiting and waiting[0].over:
            waiting.popleft()
        if carrier is not None:
            if carrier.error is not None:
                return self._fail(carrier)
            if not carrier.granted:
                if waiting:
                    return ()
            elif not carrier.lost:
                turn = carrier.turn
                if turn is not None and turn.granted and not turn.left:
                    self._prepare(carrier, turn)
                    return (turn,)
                if waiting and (turn is None or carrier.turns < turn.turns):
                    return (self._give_turn(carrier),)
        ready, self._next = self._next, None
        if not waiting:
            self._carrier = None
            return ()
        self._begin(ready or waiting[0].new_carrier(self), after=carrier)
        return self._advance() if ready else ()

    def _begin(self, carrier: Carrier, after: Carrier | None) -> None:
        if after is not None and after.was_in_line and carrier.ahead is None:
            # Its place is not known yet, but who gives up now has waited for others.
            carrier.ahead, carrier.was_in_line = 1, True
        self._carrier = carrier
        for seat in self._waiting:
            seat.carrier = carrier

    def _give_turn(self, carrier: Carrier) -> Seat:
        seat = carrier.turn = self._waiting[0]
        if not carrier.turns:
            carrier.listen(self._carrier_changed)
        seat.take_turn(carrier)
        carrier.turns += 1
        self._waiting.popleft()
        self._prepare(carrier, seat)
        return seat

    def _prepare(self, carrier: Carrier, turn: Seat) -> None:
        """Let the next batch stand in line, if there will be one."""
        if self._next is None and carrier.turns * 2 > turn.turns:
            first = next((seat for seat in self._waiting if not seat.trying), None)
            if first is not None:
                self._next = first.new_carrier(self)

    def _fail(self, carrier: Carrier) -> Sequence[Seat]:
        failed = [*self._waiting]
        for seat in failed:
            seat.error = carrier.error
        self._waiting.clear()
        self._carrier = self._next = None
        return failed

    def _tell(self, told: Sequence[Seat]) -> None:
        for seat in told:
            seat.settle()
        if self._wanted() != self._joined:
            self._session.soon(self._join_and_leave)

    def _wanted(self) -> set[Carrier]:
        return {carrier for carrier in (self._carrier, self._next) if carrier is not None}

    def _join_and_leave(self) -> None:
        while (wanted := self._wanted()) != self._joined:
            joining, leaving = wanted - self._joined, self._joined - wanted
            self._joined = wanted
            for carrier in joining:  # before the others leave: who comes next stands in line then
                carrier.join()
            for carrier in leaving:
                carrier.leave()
                carrier.turn = None  # which knows it, too


_batches: WeakKeyDictionary[Session, WeakValueDictionary[str, Batch]] = WeakKeyDictionary()
_lock = threading.RLock()


def _batch_at(session: Session, path: str) -> Batch:
    """Return the batch of a line; it lives as long as somebody has a seat in it."""
    with _lock:
        batches = _batches.get(session)
        if batches is None:  # setdefault would make a dictionary each time
            batches = _batches[session] = WeakValueDictionary()
        batch = batches.get(path)
        if batch is None:
            batch = batches[path] = Batch(session)
        return batch


def _forget_the_parent() -> None:
    """In a forked child: a thread of the parent may have had it at the fork."""
    global _lock  # noqa: PLW0603 - one per process
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_the_parent)
