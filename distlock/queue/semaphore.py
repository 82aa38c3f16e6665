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
- The limit and the permits in use are read right before each list of the queue, and the limit
  before each list of the permits, which judges by it; a waiter watches it instead.
- While nobody holds, the server removes the permits' node. It is made anew with the limit that was
  set, if one was; and it may be there already when it was read as missing, so it is read again.
- A permit that is lost before all are there is taken anew, if it is still our turn.

Source: Curator's ``InterProcessSemaphoreV2``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from distlock.logs.loggers import logger
from distlock.queue import events as e
from distlock.queue.events import LIMIT, NAMES
from distlock.queue.machine import Machine
from distlock.queue.states import RULES, Rule, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlock.keys.znodes import NodeName


#: The name, beside `leases`, of the node that keeps a limit which was set.
KEPT: Final = "limit"
#: The differences that were logged, each once.
_warned: set[tuple[str, int, int]] = set()
_WARNED_AT_MOST: Final = 1000


class Limit:
    """The limit of one semaphore as this process knows it, by the code and by changes at run time.

    ZooKeeper keeps no limit: Curator leaves it to convention, and so everybody who uses one path
    must use one number. We write ours into the data of the `leases` node, which Curator ignores, so
    that peers can tell a mistake, and so that a limit which is set at run time reaches them all.
    One that is set is also kept beside, in `KEPT`: the server removes `leases` when no permit is in
    use.

    :ivar own: the limit in the code
    :ivar told: the limit set at run time, as far as known; it overrides `own`
    :ivar known: whether that is known; not while the `leases` node is missing
    :param fixed: whether nobody can change it: a mutex has one permit
    """

    def __init__(self, key: str, own: int, *, fixed: bool = False) -> None:
        self.key = key
        self.own = whole(own, "limit")
        self.told: int | None = None
        self.known = False
        self._fixed = fixed

    @property
    def now(self) -> int:
        """The number of permits."""
        return self.own if self.told is None else self.told

    @property
    def announcement(self) -> bytes:
        """The data for peers: the limit in our code."""
        return _data(self.own)

    def read(self, data: bytes) -> bool:
        """Read the data of a peer, and return whether to write our announcement over it.

        If the peers' code has another limit, ours stays, with one warning. Ours is then written, so
        that they warn, too, and so that the limit of the last deployment remains.
        """
        written, told = limit_in(data)
        self.known = True
        self.told = written if told and not self._fixed else None
        if written is None:
            return True
        if written == self.own or self.told is not None or not self._is_news(written):
            return False
        logger.warning(
            "The semaphore %r has a limit of %d here and of %d for its peers. Each goes by its "
            "own, so the larger of the two decides how many may hold. Use one limit everywhere.",
            self.key,
            self.own,
            written,
            extra={"key": self.key},
        )
        return not told

    def refusal(self, wanted: int) -> ValueError:
        """Return the error for a caller that wants more permits than the limit."""
        return ValueError(
            f"{wanted} permits of {self.key!r} can never be had: there are {self.now}. Ask for "
            "fewer, or raise the limit."
        )

    def _is_news(self, written: int) -> bool:
        """Return whether this process has not logged this difference yet."""
        difference = self.key, self.own, written
        if difference in _warned:
            return False
        if len(_warned) >= _WARNED_AT_MOST:
            _warned.clear()
        _warned.add(difference)
        return True


def setting(limit: int) -> bytes:
    """Return the data for a limit that is set at run time."""
    return _data(limit, set=True)


def whole(value: Any, name: str) -> int:
    """Return a checked number of permits.

    :raises TypeError: not an int
    :raises ValueError: less than one
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number of permits, not {value!r:.80}.")
    if value < 1:
        raise ValueError(f"{name} cannot be {value}: a semaphore has one permit or more.")
    return value


def _data(limit: int, **more: bool) -> bytes:
    return json.dumps({"v": 1, "limit": limit, **more}, separators=(",", ":")).encode()


def limit_in(data: bytes) -> tuple[int | None, bool]:
    """Return the limit in a node's data, or None, and whether somebody has set it at run time.

    The data may be anything.
    """
    try:
        said = json.loads(data[:1000])
        return whole(said["limit"], "limit"), said.get("set") is True
    except (ValueError, TypeError, KeyError, RecursionError):
        return None, False


S = State


def _limit_read_in(*states: State) -> tuple[Rule, Rule]:
    """Return the rules of a limit that is read in these states, and comes too late in others."""
    late = [s for s in S if s not in (S.NEW, S.PARKED, *states)]
    return Rule(states, e.LimitRead, "_limit_read"), Rule(late, e.LimitRead)


class Limited(Machine):
    """A contender that goes by the limit.

    :param limit: how many permits there are, as far as this process knows
    :param wanted: how many the caller takes, all or none
    """

    __slots__ = ("limit", "wanted")

    def __init__(self, *args: Any, limit: Limit, wanted: int = 1, **options: Any) -> None:
        super().__init__(*args, **options)
        self.limit = limit
        self.wanted = wanted

    def _enter(self, _: Any = None) -> None:
        if self.session.connected and self._rereads():
            self._do(e.ReadLimit())
        super()._enter()

    def _look(self, _: Any = None) -> None:
        if self.session.connected and self.standing and self._rereads():
            self._do(e.ReadLimit())
        super()._look()

    def _rereads(self) -> bool:
        """Return whether to read the limit before the list that is judged by it."""
        return LIMIT not in self._watching

    def _limit_read(self, event: e.LimitRead) -> None:
        if event.error is e.Problem.MISSING:
            self.limit.known = False
        elif event.error is None and self.limit.read(event.data):
            self._do(e.WriteLimit(self.limit.announcement, event.version))

    def _see(self, names: Sequence[str]) -> None:
        """Refuse a caller that would wait for ever at the head, and everybody behind it."""
        if self.limit.known and self.wanted > self.limit.now:
            self._refuse(e.Why.BEYOND_LIMIT)
        else:
            self._judge(names)

    def _judge(self, names: Sequence[str]) -> None:
        super()._see(names)


class Turn(Limited):
    """The place in the queue.

    While enough permits are free, those ahead take a moment, and do not count as waiters.
    """

    __slots__ = ("_error", "_taken")
    rules = (*RULES, *_limit_read_in(S.JOINING, S.LOOKING))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Of the last look at the permits: how many are in use, for one who counts, and the error.
        self._taken = 0
        self._error: e.Error = None

    @property
    def valid(self) -> bool:
        """Whether it is our turn, in this session."""
        return self.state is S.HOLDING and self.standing

    def _limit_read(self, event: e.LimitRead) -> None:
        super()._limit_read(event)
        self._taken = event.taken if self.max_waiters < inf else 0
        self._error = None if event.error is e.Problem.MISSING else event.error

    def _judge(self, names: Sequence[str]) -> None:
        if self._error is not None:
            self._fail(self._error)
        elif not self.max_waiters and self._free() < self.wanted:
            self.seen = True
            self.ahead = self._taken
            self._be_busy(len(names) - 1)  # without nodes that could be too many
        else:
            super()._judge(names)

    def _waiting_ahead(self, line: list[NodeName], own: int) -> float:
        free = self._free()
        # The first waits if it has made permits beyond the limit. Else it may have what it needs.
        return own if free < 0 else own - 1 - free

    def _free(self) -> float:
        """Return how many permits were free at the last look."""
        return self.limit.now - self._taken if self.limit.known else inf


class Permit(Limited):
    """A permit: it waits until there are no more than the limit."""

    __slots__ = ()
    rules = (
        *RULES,
        *_limit_read_in(S.JOINING, S.LOOKING, S.WAITING),
        Rule(S.JOINING, e.KeptRead, "_kept_read", S.JOINING, S.REFUSED),
        Rule(S.WAITING, e.Listed, "_listed", S.JOINING, S.REFUSED, S.PROVING, S.WAITING, S.HOLDING),
        Rule((S.PROVING, S.BUSY, S.HOLDING, S.LOST), e.Listed),
    )

    def _created(self, event: e.Created) -> None:
        if event.error is e.Problem.MISSING and self._line_error is None:
            self._do(e.ReadKept())
        else:
            super()._created(event)

    def _kept_read(self, event: e.KeptRead) -> None:
        """Make the permits' node with the limit that counts, and join there."""
        if event.error not in (None, e.Problem.MISSING):
            self._fail(event.error)
            return
        ours = self.limit.read(event.data)
        self._do(e.MakePermits(self.limit.announcement if ours else event.data))
        self._enter()

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
            if not self.max_waiters:
                self._be_busy(0)
            else:
                self.state = S.WAITING
                self._watch_limit()
                self._watch(NAMES, e.WatchNames())

    # --- watches at the permits' node: `LIMIT`, `NAMES` ------------------------------------------

    def _watch_limit(self) -> None:
        self._watch(LIMIT, e.WatchLimit())

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
