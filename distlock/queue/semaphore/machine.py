"""A semaphore over the wait queue: a way to permits in a few steps. Without I/O.

``<path>/locks`` is a fair queue. The first contender there makes nodes in ``<path>/leases``, waits
until that has no more nodes than the limit, and leaves the queue. So only one contender waits for
permits, without a herd; and one that wants several waits there for all of them: no two can have a
part each and wait for the rest.

The place in the queue and each permit are contenders with a `distlock.queue.machine`: `Turn` and
`Permit` are such machines, with what is different. A `Program` makes them.

How it is safe:

- A node beyond the limit, counted with all others, gives nothing. The queue is for fairness only,
  so our turn lasts as long as the session, and does not end with the session deadline.
- The limit and the permits in use are read right before each list of the queue, and a changed limit
  before a list of the permits, which judges by it.
- A permit that is lost before all are there is taken anew, if it is still our turn.

Source: Curator's ``InterProcessSemaphoreV2``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from distlock.queue import events as e
from distlock.queue.events import LIMIT, NAMES
from distlock.queue.machine import Machine
from distlock.queue.states import RULES, Rule, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .limits import Limit

S = State


def _limit_read_in(*states: State) -> tuple[Rule, Rule]:
    """Return the rules of a limit that is read in these states, and comes too late in others."""
    late = [s for s in S if s not in (S.NEW, S.PARKED, *states)]
    return Rule(states, e.LimitRead, "_limit_read"), Rule(late, e.LimitRead)


class Limited(Machine):
    """A contender that goes by the limit.

    :param limit: how many permits there are, as far as this process knows
    :param wanted: how many the caller takes, all or none
    :param tries: be `Busy` as soon as too few are free
    """

    __slots__ = ("limit", "tries", "wanted")

    def __init__(
        self, *args: Any, limit: Limit, wanted: int = 1, tries: bool = False, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.limit = limit
        self.wanted = wanted
        self.tries = tries

    def _limit_read(self, event: e.LimitRead) -> None:
        if event.error is None and self.limit.read(event.data):
            self._do(e.WriteLimit(self.limit.announcement, event.version))

    def _see(self, names: Sequence[str]) -> None:
        """Refuse a caller that would wait for ever at the head, and everybody behind it."""
        if self.wanted > self.limit.now:
            self._refuse(e.Why.BEYOND_LIMIT)
        else:
            self._judge(names)

    def _judge(self, names: Sequence[str]) -> None:
        super()._see(names)


class Turn(Limited):
    """The place in the queue.

    While enough permits are free, those ahead take a moment, and one who tries waits for them.
    """

    __slots__ = ("_error", "_taken")
    rules = (*RULES, *_limit_read_in(S.JOINING, S.LOOKING))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Of the last look at the permits: how many are in use, for one who tries, and the error.
        self._taken = 0
        self._error: e.Error = None

    @property
    def valid(self) -> bool:
        """Whether it is our turn, in this session."""
        return self.state is S.HOLDING and self.standing

    def _enter(self) -> None:
        if self.session.connected:
            self._do(e.ReadLimit())
        super()._enter()

    def _look(self, _: Any = None) -> None:
        if self.session.connected and self.standing:
            self._do(e.ReadLimit())
        super()._look()

    def _limit_read(self, event: e.LimitRead) -> None:
        super()._limit_read(event)
        self._taken = event.taken if self.tries else 0
        self._error = None if event.error is e.Problem.MISSING else event.error

    def _judge(self, names: Sequence[str]) -> None:
        if self._error is not None:
            self._fail(self._error)
        elif self.tries and self._taken + self.wanted > self.limit.now:
            self.seen = True
            self.ahead = self._taken
            self._be_busy()  # without nodes that could be too many
        else:
            super()._judge(names)


class Permit(Limited):
    """A permit: it waits until there are no more than the limit."""

    __slots__ = ("_watching",)
    rules = (
        *RULES,
        *_limit_read_in(S.JOINING, S.LOOKING, S.WAITING),
        Rule(S.WAITING, e.Listed, "_listed", S.JOINING, S.REFUSED, S.PROVING, S.WAITING, S.HOLDING),
        Rule((S.PROVING, S.BUSY, S.HOLDING, S.LOST), e.Listed),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: The watches at the permits' node: `LIMIT`, `NAMES`.
        self._watching: frozenset[str] = frozenset()

    def _line_made(self, event: e.LineMade) -> None:
        super()._line_made(event)
        self._do(e.WriteLimit(self.limit.announcement, 0))

    def _limit_read(self, event: e.LimitRead) -> None:
        super()._limit_read(event)
        if event.error is not None:
            self._watching -= {LIMIT}  # what has become of the permits, their list tells

    def _judge(self, names: Sequence[str]) -> None:
        self.seen = True
        if self.node is None or self.node.name not in names or not self.standing:
            self._start_anew()  # expired, or broken by an operator (CURATOR-211)
        elif len(names) <= self.limit.now:
            self._unwait()
            self._have_turn()
        else:
            self.ahead = len(names) - self.limit.now
            if self.tries:
                self._be_busy()
            else:
                self.state = S.WAITING
                self._watch_limit()
                if NAMES not in self._watching:
                    self._watching |= {NAMES}
                    self._do(e.WatchNames())

    # --- watches ---------------------------------------------------------------------------------

    def _watch_limit(self) -> None:
        if LIMIT not in self._watching:
            self._watching |= {LIMIT}
            self._do(e.WatchLimit())

    def _ahead_changed(self, event: e.Changed) -> None:
        self._own_changed(event)

    def _own_changed(self, event: e.Changed) -> None:
        if event.name in self._watching:
            self._watching -= {event.name}
            if event.name == LIMIT and self.session.connected:
                self._watch_limit()
            self._look()  # after it, so that the permits are judged by the new limit
        else:
            super()._own_changed(event)

    def _unwait(self) -> None:
        for name in sorted(self._watching):
            self._do(e.Unwatch(name))
        self._watching = frozenset()

    def _start_anew(self) -> None:
        self._unwait()  # or else our own new node uses a watch up
        super()._start_anew()

    def _disconnected(self, event: e.Disconnected) -> None:
        self._watching = frozenset()
        super()._disconnected(event)


class Part(Protocol):
    """A `Turn` or a `Permit`, as it is driven."""

    machine: Machine
    left: bool

    def join(self) -> None: ...
    def leave(self) -> None: ...


_P = TypeVar("_P", bound=Part)


class Program(ABC, Generic[_P]):
    """The steps: come to the queue, make the permits, wait for all of them, leave the queue.

    :param wanted: how many permits to take
    """

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.queue = self.new_turn()
        #: Each is given back for itself, once all are granted.
        self.permits: list[_P] = []
        self.granted = False
        #: Whether the caller has given up.
        self.left = False

    @abstractmethod
    def new_turn(self) -> _P:
        """Return a new place in the queue."""

    @abstractmethod
    def new_permit(self) -> _P:
        """Return a new permit."""

    @abstractmethod
    def settle(self) -> None:
        """Let the caller know that it has the permits."""

    @property
    def parts(self) -> list[_P]:
        """The permits, which are left before the queue: the next one there finds them gone."""
        return [*self.permits, self.queue]

    def leave_parts(self) -> None:
        """Leave all that have not left."""
        for part in self.parts:
            if not part.left:
                part.leave()

    def advance(self) -> None:
        """Do what is due, after each event of a part."""
        if self.left or self.granted:
            return
        if self.queue.machine.state is S.LOST:
            self.leave_parts()
            self.permits = []
            self.queue = self.new_turn()
            self.queue.join()
        elif self.queue.machine.valid:
            self._take()

    def _take(self) -> None:
        """Have the permits if all are granted; make those that are missing, or lost meanwhile."""
        lost = [permit for permit in self.permits if _is_lost(permit.machine)]
        if lost or not self.permits:
            kept = [permit for permit in self.permits if permit not in lost]
            new = [self.new_permit() for _ in range(self.wanted - len(kept))]
            self.permits = kept + new
            for permit in lost:
                permit.leave()
            for permit in new:
                permit.join()
        elif all(permit.machine.valid for permit in self.permits):
            self.granted = True
            self.queue.leave()
            self.settle()


def _is_lost(machine: Machine) -> bool:
    return machine.state in (S.HOLDING, S.LOST) and not machine.valid
