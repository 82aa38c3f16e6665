"""Processes whose contenders are a semaphore's: the rest of the world is `tests.queue.world`."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from distlock.queue import events as e
from distlock.queue.local_line import LocalLine
from distlock.queue.policies import Policy
from distlock.queue.semaphore import events as s
from distlock.queue.semaphore.events import LEASES, LOCKS, At
from distlock.queue.semaphore.limits import Limit
from distlock.queue.semaphore.machine import SemaphoreMachine
from distlock.queue.semaphore.states import SemaphoreState
from distlock.queue.states import State
from tests.queue.world import NAMES, Faults, Process, Server, World, Wrong, _copier, _decides, clone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlock.queue.machine import Machine

#: The states from which no event of the server leads out; all others count as `State.LOOKING`.
REST = {
    SemaphoreState.NEW: State.NEW,
    SemaphoreState.BUSY: State.BUSY,
    SemaphoreState.HOLDING: State.HOLDING,
    SemaphoreState.REFUSED: State.REFUSED,
    SemaphoreState.LEFT: State.LEFT,
}
#: The states in which it may have nodes that it does not know yet.
UNSURE = frozenset(
    {
        SemaphoreState.MAKING,
        SemaphoreState.FINDING,
        SemaphoreState.LEAVING,
        SemaphoreState.SEARCHING,
    }
)
COPIED = tuple(
    name
    for name in SemaphoreMachine.__slots__
    if name not in ("_effects", "limit", "new_prefix", "nodes", "permits", "queue", "session")
)
_plain = attrgetter(*(name for name in COPIED if name not in ("ahead", "seen")))
_copy = _copier(COPIED)
_FOR_PERMITS = (e.Connected, e.Disconnected, e.Renewed, e.Lapsed, e.Leave)
#: Events of one permit's node.
_OF_A_PERMIT = (e.Changed, e.Watched)


class Taker:
    """A semaphore's contender, and its permits, as the driver runs them."""

    def __init__(self, machine: SemaphoreMachine, me: int) -> None:
        self.machine = machine
        self.me = me
        self.attempts = 0
        #: For `tests.queue.steps`: contenders of one policy are alike.
        self.policy = Policy(f"{machine.wanted} permits")
        machine.new_prefix = machine.queue.new_prefix = self.next_prefix

    def next_prefix(self) -> str:
        self.attempts += 1
        return f"_c_{NAMES[self.me]}{self.attempts}-"

    @property
    def try_only(self) -> bool:
        return self.machine.try_only

    @property
    def machines(self) -> list[Machine]:
        return [self.machine.queue, *self.machine.permits]

    @property
    def state(self) -> State:
        machine = self.machine
        if any(permit.state is State.LOST for permit in machine.permits):
            return State.LOST
        if machine.state is SemaphoreState.LEFT and not machine.done:
            return State.LEAVING
        return REST.get(machine.state, State.LOOKING)

    @property
    def valid(self) -> bool:
        """Whether it holds all of its permits."""
        permits = self.machine.permits
        return bool(permits) and all(permit.valid for permit in permits)

    def apply(self, event: Any) -> Sequence[Any]:
        """Apply an event to the contender, or to its permits, or to both."""
        event = self._addressed(event)
        where, what = event if type(event) is At else (None, event)
        effects: list[Any] = []
        if type(what) is not e.Lapsed and not (where == LEASES and type(what) in _OF_A_PERMIT):
            effects += self.machine.apply(event)
        if type(what) in _FOR_PERMITS or (where == LEASES and type(what) in _OF_A_PERMIT):
            for permit in self.machine.permits:
                effects += [At(LEASES, effect) for effect in permit.apply(what)]
        return effects

    def _addressed(self, event: Any) -> Any:
        match event:
            case e.Changed("Limit"):
                return At(LEASES, s.PermitsChanged(names=False))
            case e.Changed("Names"):
                return At(LEASES, s.PermitsChanged(names=True))
            case e.Changed():
                return At(LOCKS if "lock-" in event.name else LEASES, event)
        return event

    def copy(self, process: Process) -> Taker:
        new = object.__new__(Taker)
        new.me, new.attempts, new.policy = self.me, self.attempts, self.policy
        old = self.machine
        machine = new.machine = object.__new__(type(old))
        _copy(old, machine)
        machine.nodes = list(old.nodes)
        machine.limit = object.__new__(Limit)
        vars(machine.limit).update(vars(old.limit))
        machine.session = process
        machine.new_prefix = new.next_prefix
        machine.queue = self._copy_of(old.queue, machine)
        machine.permits = [self._copy_of(permit, machine) for permit in old.permits]
        return new

    def _copy_of(self, old: Machine, machine: SemaphoreMachine) -> Machine:
        copy = clone(old, machine.session)  # type: ignore[arg-type]
        copy.local = LocalLine()
        copy.new_prefix = machine.new_prefix
        return copy

    @property
    def key(self) -> Any:
        return (
            self.attempts,
            self.machine.limit.told,
            *_plain(self.machine),
            *self.machine.nodes,
            *map(_decides, self.machines),
        )


class SemaphoreProcess(Process):
    """A process that has contenders of a semaphore."""

    __slots__ = ()
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

    def note_grant(self, world: World, contender: Any) -> None:
        if not contender.valid:
            raise Wrong(f"{NAMES[contender.me]} is granted what is lost already")
        names = [permit.node.name for permit in contender.machine.permits]
        for name, owner, _ in world.server.nodes:
            if name in names and owner != self.id:
                raise Wrong(f"{NAMES[contender.me]} is granted on a node of an earlier session")


def beginning(
    wanted: Sequence[int],
    limit: int,
    faults: Faults,
    *,
    homes: Sequence[int],
    machine: type[SemaphoreMachine] = SemaphoreMachine,
    line: bool = True,
    slow: bool = False,
    try_only: Sequence[int] = (),
) -> World:
    """Return the world in which nobody has come to the semaphore.

    :param wanted: how many permits each contender wants
    :param limit: how many there are
    """
    processes: list[Process] = []
    for number in range(max(homes) + 1):
        inside = [n for n, home in enumerate(homes) if home == number]
        process = SemaphoreProcess(number, inside)
        for n in inside:
            one = machine(process, Limit("key", limit), wanted=wanted[n], try_only=n in try_only)
            process.contenders[n] = Taker(one, n)
        processes.append(process)
    data = Limit("key", limit).announcement if line else b""
    server = Server(line=int(line), sessions=len(processes), limit=data, most=limit)
    return World(server, processes, faults, slow=slow)
