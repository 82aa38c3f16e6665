"""Batches: one node in line for several waiters of a process, who have the lock in turns.

With ``handoff=N`` a process keeps its node until N of its waiters have had the lock, or none is
left, before the next process gets its turn. So N holds cost one pair of writes, and the others wait
for up to N holds instead of one. In the process itself it is first come, first served.

All holds of a batch are on one node and have one fencing token: each of them begins after the one
before has ended in this process.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from .handover import MutexPlace
from .place import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from .session import Session


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
        self.carrier: MutexPlace | None = None
        self.turns = turns
        super().__init__(session, path, **options)
        self._batch = _batch_at(session, path)

    @property
    def trying(self) -> bool:
        """Whether it does not wait."""
        return self._try_only

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
        if self.granted and not self.left and (self.carrier is None or self.carrier.lost):
            self._lost = True
        return super().lost

    def lease_renewed(self) -> None:
        """The carrier watches the node."""

    def new_carrier(self, settled: Callable[[MutexPlace], None]) -> MutexPlace:
        """Return a place whose node says what one of this seat would say."""
        carrier: MutexPlace
        carrier = MutexPlace(
            self.session,
            self.path,
            key=self.key,
            data=self._data,
            settled=lambda: settled(carrier),
            try_only=self._try_only,
        )
        return carrier

    def take_turn(self, carrier: MutexPlace) -> None:
        """Have the lock; `settle` is to follow."""
        self.carrier = carrier
        self.node = carrier.node
        self.epoch = carrier.epoch
        self.granted = True

    def settle(self) -> None:
        """Wake the one who waits."""
        self._settled()


class Batch:
    """Who of this process waits for turns at one lock, and the places in line that carry them.

    What is decided under the lock is sent on the connection thread, where no exception of a caller
    can land in the middle of it.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: deque[Seat] = deque()
        #: Whose turn it is, and the how many-th of this batch.
        self._turn: Seat | None = None
        self._turns = 0
        self._carrier: MutexPlace | None = None
        #: Whether that is the carrier of one who does not wait.
        self._tries = False
        #: The carrier of the next batch: it joins the line when half of this one is over.
        self._next: MutexPlace | None = None
        self._to_join: deque[MutexPlace] = deque()
        self._to_leave: deque[MutexPlace] = deque()

    def enter(self, seat: Seat) -> None:
        """Wait as the last."""
        with _lock:
            self._waiting.append(seat)
            if self._carrier is None:
                self._begin()
            seat.carrier = self._carrier
        self._send()

    def leave(self, seat: Seat) -> None:
        """Wait no more, or end the turn and let the next one have it."""
        after = None
        with _lock:
            turn = self._turn
            if turn is seat or (turn is not None and not turn.granted):  # interrupted just there
                after = self._end_turn(seat)
            elif seat in self._waiting:
                self._waiting.remove(seat)
                if turn is None and (self._tries or not self._waiting):
                    self._begin_anew()
        if after is not None:
            after.settle()
        self._send()

    def _end_turn(self, seat: Seat) -> Seat | None:
        """Return who is next on the same node; end the batch where there is none."""
        carrier = self._carrier
        goes_on = carrier is not None and not carrier.lost and self._turns < seat.turns
        if goes_on and self._waiting:
            if self._next is None and self._turns * 2 >= seat.turns:
                self._next = self._carrier_of(self._waiting[0])
            return self._give_turn()
        self._turn = None
        self._begin_anew()
        return None

    def _give_turn(self) -> Seat:
        seat = self._turn = self._waiting[0]
        seat.take_turn(cast("MutexPlace", self._carrier))
        self._turns += 1
        self._waiting.popleft()  # in this order a call that was interrupted can be repeated
        return seat

    def _begin_anew(self) -> None:
        """Leave the line, and stand in it again for those who wait."""
        ended, self._carrier = self._carrier, None
        if ended is not None:
            self._to_leave.append(ended)
        if self._waiting:
            self._begin()
        elif self._next is not None:
            self._to_leave.append(self._next)
            self._next = None

    def _begin(self) -> None:
        self._tries = self._waiting[0].trying
        self._carrier = self._next or self._carrier_of(self._waiting[0])
        self._next = None
        self._turns = 0
        for seat in self._waiting:
            seat.carrier = self._carrier

    def _carrier_of(self, seat: Seat) -> MutexPlace:
        carrier = seat.new_carrier(self._carrier_settled)
        self._to_join.append(carrier)
        return carrier

    def _carrier_settled(self, carrier: MutexPlace) -> None:
        """Tell who waits that the carrier has the lock, or will not have it."""
        told: list[Seat] = []
        with _lock:
            if carrier is self._carrier and self._turn is None:
                if carrier.granted and self._waiting:
                    told = [self._give_turn()]
                elif carrier.error is not None:
                    told = list(self._waiting)
                    self._waiting.clear()
                    for seat in told:
                        seat.error = carrier.error
                    self._begin_anew()
                else:
                    told = [seat for seat in self._waiting if seat.trying]
        for seat in told:
            seat.settle()
        self._send()

    def _send(self) -> None:
        if self._to_join or self._to_leave:
            self._session.soon(self._join_and_leave)

    def _join_and_leave(self) -> None:
        while self._to_join:  # before the others leave: who comes next stands in line by then
            self._to_join.popleft().join()
        while self._to_leave:
            self._to_leave.popleft().leave()


_batches: WeakKeyDictionary[Session, WeakValueDictionary[str, Batch]] = WeakKeyDictionary()
_lock = threading.Lock()


def _batch_at(session: Session, path: str) -> Batch:
    """Return the batch of a line; it lives as long as somebody has a seat in it."""
    with _lock:
        batches = _batches.setdefault(session, WeakValueDictionary())
        batch = batches.get(path)
        if batch is None:
            batch = batches[path] = Batch(session)
        return batch


def _forget_the_parent() -> None:
    """In a forked child: a thread of the parent may have had it at the fork."""
    global _lock  # noqa: PLW0603 - one per process
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_the_parent)
