"""Processes whose contenders are a semaphore's: the rest of the world is `tests.queue.world`."""

from __future__ import annotations

from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.keys.znodes import LEASE
from distlock.queue import events as e
from distlock.queue.local_line import LocalLine
from distlock.queue.policies import FAIR, Policy
from distlock.queue.semaphore import Limit, Permit, Program, Turn, setting
from distlock.queue.states import State
from tests.queue.world import (
    COPIED,
    NAMES,
    Faults,
    Process,
    Server,
    World,
    Wrong,
    _copier,
    _decides,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The queue, and the permits.
LOCKS, LEASES = "locks", "leases"


class At(NamedTuple):
    """A request of one of a semaphore's contenders, or its answer."""

    where: str
    part: int
    what: Any


class Bugs(NamedTuple):
    """The classes, or mutations of them."""

    turn: type[Turn] = Turn
    permit: type[Permit] = Permit
    program: Any = Program


_MORE = {Turn: ("_error", "_taken"), Permit: ("_watching",)}
#: By class: what copies a machine, and what tells it from another one.
_copy, _more = {}, {}
for _cls, _names in _MORE.items():
    names = (*COPIED, "limit", "wanted", *_names)
    _copy[_cls] = _copier(names)
    _more[_cls] = attrgetter(*_names)


class Part:
    """A place in the queue, or a permit, as the driver runs it."""

    def __init__(self, of: Taker, machine: Any, number: int, *, left: bool = False) -> None:
        self.of = of
        self.machine = machine
        self.number = number
        self.left = left
        machine.new_prefix = of.next_prefix

    @property
    def where(self) -> str:
        return LEASES if isinstance(self.machine, Permit) else LOCKS

    def join(self) -> None:
        self.apply(e.Join())

    def leave(self) -> None:
        self.left = True
        self.apply(e.LEAVE)

    def apply(self, event: Any) -> None:
        """Apply an event; a watch that another permit needs, too, stays."""
        if self.machine.state is State.LEFT:
            return
        for effect in self.machine.apply(event):
            if type(effect) in (e.Grant, e.Lose, e.Busy, e.Refuse):
                self.of.news.append(effect)
            elif not (type(effect) is e.Unwatch and self.of.is_watching(effect.name)):
                self.of.effects.append(At(self.where, self.number, effect))

    def hears(self, name: str) -> bool:
        """Whether a change of this node is its business."""
        machine, node = self.machine, self.machine.node
        watching = name in getattr(machine, "_watching", ())
        return watching or name == machine._watched or (node is not None and name == node.name)


class Taker:
    """A caller's way to its permits, as the driver runs it."""

    def __init__(
        self, process: Any, me: int, limit: Limit, wanted: int, *, tries: bool, bugs: Bugs
    ) -> None:
        self.process = process
        self.me = me
        self.bugs = bugs
        self.max_waiters = 0 if tries else inf
        self.attempts = 0
        #: For `tests.queue.steps`: contenders of one policy are alike.
        self.policy = Policy(f"{wanted} permits")
        self.limit = limit
        self.wanted = wanted
        self.effects: list[Any] = []
        self.news: list[Any] = []
        #: All that have not left, and are heard of.
        self.parts: list[Part] = []
        self.program = _of(bugs.program, self)

    def next_prefix(self) -> str:
        self.attempts += 1
        return f"_c_{NAMES[self.me]}{self.attempts}-"

    def new(self, cls: Any, policy: Policy) -> Part:
        options = {"limit": self.limit, "wanted": self.wanted, "max_waiters": self.max_waiters}
        machine = cls(policy, self.process, LocalLine(), me=None, **options)
        numbers = [part.number for part in self.parts]
        number = next(n for n in range(len(numbers) + 1) if n not in numbers)
        self.parts.append(Part(self, machine, number))
        return self.parts[-1]

    def is_watching(self, name: str) -> bool:
        return any(name in getattr(part.machine, "_watching", ()) for part in self.parts)

    @property
    def queue(self) -> Any:
        return self.program.queue.machine

    @property
    def permits(self) -> list[Any]:
        return [permit.machine for permit in self.program.permits]

    @property
    def machines(self) -> list[Any]:
        return [part.machine for part in self.parts]

    @property
    def state(self) -> State:
        """The states from which no event of the server leads out; all others are `LOOKING`."""
        program = self.program
        states: list[State] = [part.machine.state for part in program.parts]
        if self.queue.state is State.NEW:
            return State.NEW
        if program.left:
            return State.LEFT
        outcomes: list[State] = [State.REFUSED, State.BUSY, *[State.LOST] * program.granted]
        for state in outcomes:
            if state in states:
                return state
        return State.HOLDING if program.granted else State.LOOKING

    @property
    def valid(self) -> bool:
        """Whether it holds all of its permits."""
        return self.program.granted and all(permit.valid for permit in self.permits)

    def apply(self, event: Any) -> Sequence[Any]:
        """Apply an event to the contender that it is for, or to all."""
        self.effects, self.news = [], []
        program = self.program
        match event:
            case e.Join():
                program.queue.join()
            case e.Leave():
                program.left = True
                program.leave_parts()
            case At():
                self._deliver(event.what, [p for p in self.parts if p.number == event.part])
            case e.Changed():
                self._deliver(event, [part for part in self.parts if part.hears(event.name)])
            case _:
                self._deliver(event, list(self.parts))
        self.parts = [part for part in self.parts if part.machine.state is not State.LEFT]
        granted = [e.GRANT] if SETTLED in self.news else []
        rest = [one for one in self.news if type(one) not in (e.Grant, str)]
        return [*self.effects, *granted, *rest]

    def _deliver(self, event: Any, parts: Sequence[Part]) -> None:
        for part in parts:
            if part.machine.state is not State.NEW:
                part.apply(event)
            self.program.advance()

    def copy(self, process: Process) -> Taker:
        new = object.__new__(Taker)
        vars(new).update(vars(self))
        new.process = process
        new.effects, new.news = [], []
        new.limit = object.__new__(Limit)
        vars(new.limit).update(vars(self.limit))
        old = {*self.parts, *self.program.parts}
        copies = {
            part: Part(new, _clone(part.machine, new), part.number, left=part.left) for part in old
        }
        new.parts = [copies[part] for part in self.parts]
        program = new.program = object.__new__(type(self.program))
        vars(program).update(vars(self.program))
        program.taker = new
        program.queue = copies[self.program.queue]
        program.permits = [copies[permit] for permit in self.program.permits]
        return new

    @property
    def key(self) -> Any:
        program = self.program
        current = program.parts
        return (
            self.attempts,
            self.limit.told,
            self.limit.known,
            program.granted,
            program.left,
            *(
                (
                    part.number,
                    part.left,
                    part in current,
                    *_decides(part.machine),
                    _more[_base(part.machine)](part.machine),
                )
                for part in (self.parts or current)
            ),
        )


SETTLED = "settled"


def _of(cls: Any, taker: Taker) -> Any:
    """Return a program whose contenders are a taker's."""

    class OfTaker(cls):  # type: ignore[misc] # a mutation, or not
        def new_turn(self) -> Part:
            return self.taker.new(self.taker.bugs.turn, FAIR)

        def new_permit(self) -> Part:
            shared = self.taker.limit.now > 1
            return self.taker.new(self.taker.bugs.permit, Policy(LEASE, shared=shared))

        def settle(self) -> None:
            self.taker.news.append(SETTLED)

        taker: Taker

    OfTaker.taker = taker
    return OfTaker(taker.wanted)


def _base(machine: Any) -> Any:
    return Permit if isinstance(machine, Permit) else Turn


def _clone(old: Any, taker: Taker) -> Any:
    new = object.__new__(type(old))
    _copy[_base(old)](old, new)
    new.session = taker.process
    new.local = LocalLine()
    new.limit = taker.limit
    return new


class SemaphoreProcess(Process):
    """A process that has contenders of a semaphore."""

    __slots__ = ()
    #: How many requests a join sends at once.
    first_requests = 3
    contenders: dict[int, Any]

    def bind(self) -> None:
        """Do nothing: no semaphore is downgraded."""

    def clone(self, contender: Any) -> Any:
        return contender.copy(self)

    def decides(self, contender: Any) -> Any:
        return contender.key

    def would_watch(self, contender: Any) -> bool:
        return any(map(super().would_watch, contender.machines))

    def forget(self, name: str) -> None:
        """Do nothing: no semaphore is handed over."""

    def names_of(self, contender: Any) -> list[str]:
        return [permit.node.name for permit in contender.permits]

    def note_grant(self, world: World, contender: Any) -> None:
        if not contender.valid:
            raise Wrong(f"{NAMES[contender.me]} is granted what is lost already")
        names = self.names_of(contender)
        for name, owner, _ in world.server.nodes:
            if name in names and owner != self.id:
                raise Wrong(f"{NAMES[contender.me]} is granted on a node of an earlier session")


def beginning(
    wanted: Sequence[int],
    limit: int,
    faults: Faults,
    *,
    homes: Sequence[int],
    bugs: Bugs = Bugs(),  # noqa: B008 - it does not change
    line: bool = True,
    slow: bool = False,
    try_only: Sequence[int] = (),
    kept: int | None = None,
) -> World:
    """Return the world in which nobody has come to the semaphore.

    :param wanted: how many permits each contender wants
    :param limit: how many there are by the code
    :param kept: how many there are, for it was set
    """
    processes: list[Process] = []
    for number in range(max(homes) + 1):
        inside = [n for n, home in enumerate(homes) if home == number]
        process = SemaphoreProcess(number, inside)
        for n in inside:
            process.contenders[n] = Taker(
                process, n, Limit("key", limit), wanted[n], tries=n in try_only, bugs=bugs
            )
        processes.append(process)
    data = Limit("key", limit).announcement if line else b""
    server = Server(
        line=int(line),
        sessions=len(processes),
        limit=data,
        most=kept or limit,
        permits=line,
        kept=setting(kept) if kept else b"",
    )
    return World(server, processes, faults, slow=slow)
