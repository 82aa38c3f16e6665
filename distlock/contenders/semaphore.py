"""Drives a contender of a semaphore: its way through the queue, and its permits.

From the grant on, each permit is a contender of its own.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import ref

from distlock.engine.reply import ignore
from distlock.queue import events as e
from distlock.queue.semaphore import events as s
from distlock.queue.semaphore.events import LEASES, LOCKS, At
from distlock.queue.semaphore.machine import SemaphoreMachine

from . import answers
from .contender import QueuedContender
from .driver import Driver
from .grant import remind
from .refusals import refusal
from .wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from distlock.queue.events import Node
    from distlock.queue.machine import Machine
    from distlock.queue.semaphore.limits import Limit
    from distlock.session.session import Session


#: The names of the two watches at the permits' node: on its data, and on its children.
_WATCHED: Final = ("limit", "names")


class SemaphoreContender(Driver):
    """A caller's wait at the semaphore under `path`; then it has `permits`.

    :param limit: how many permits there are
    :param wanted: how many to take, all or none
    :param key: the semaphore's, for messages
    :param data: what the nodes say of their owner
    :param settled: called, from any thread, when it is granted, busy or refused
    :param try_only: settle as soon as too few permits are free
    """

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        limit: Limit,
        wanted: int = 1,
        key: str,
        data: bytes,
        settled: Callable[[], None],
        try_only: bool = False,
    ) -> None:
        self.session = session
        self.path = f"{path}/{LEASES}"
        self.key = key
        self.data = data
        self.granted = False
        self.left = False
        #: When its caller has surely given up (`time.monotonic`).
        self.overdue_at = math.inf
        #: The permits, once granted.
        self.permits: list[Permit] = []
        self._settled = settled
        self._limit = limit
        self._wanted = wanted
        self.machine = SemaphoreMachine(session, limit, wanted=wanted, try_only=try_only)
        #: The requests at the queue's node, and at the permits'.
        self._queue = QueueWire(self, f"{path}/{LOCKS}", data)
        self._leases = LeasesWire(self, self.path, data)

    # --- for the caller --------------------------------------------------------------------------

    def join(self) -> None:
        """Come to the queue as soon as there is a connection; never blocks."""
        self.session.heartbeat.attend(self)
        self.follow(self.session.connection)
        self._sure = False
        self._carry_out(self.machine.apply(e.JOIN))
        self.session.soon(self._attend)
        self._sure = True

    def leave(self) -> None:
        """Give up, granted or not; the nodes are deleted for certain. May be repeated."""
        session, machine = self.session, self.machine
        self.left = True
        session.heartbeat.dismiss(self)
        if self.ahead is None:  # a try that ends in the queue is refused, if the queue was seen
            self.ahead = machine.queue.ahead or None
        # The permits first, so that the next in the queue finds them gone.
        deletes = [*self._leases.take(machine.nodes), *self._queue.take([machine.queue.node])]
        try:
            session.soon(self._attend)
            for delete in deletes:
                delete()
        except BaseException:  # a soft time limit landed here
            for delete in deletes:
                session.soon(delete)
            raise

    @property
    def node(self) -> Node | None:
        """The node of the first permit."""
        return self.permits[0].node if self.permits else None

    @property
    def lost(self) -> bool:
        """Whether not all permits are certain any more."""
        return any(permit.lost for permit in self.permits)

    @property
    def asked_at(self) -> float:
        """When the server was last asked for a node (`time.monotonic`)."""
        return max(self._queue.asked_at, self._leases.asked_at)

    def report(self) -> None:
        """Its permits report; see `remind`."""
        remind(self)

    # --- events, on the connection thread --------------------------------------------------------

    def follow(self, connection: int) -> None:
        self._connection = connection
        self._queue.follow(connection)
        self._leases.follow(connection)

    def _attend(self) -> None:
        for permit in self.permits:
            if self.left and not permit.left:
                permit.leave()
        super()._attend()

    def apply(self, event: s.Event) -> None:
        machine = self.machine
        effects = machine.apply(event)
        if not self.left:
            self.ahead = machine.ahead
            self.was_in_line = self.was_in_line or machine.seen
        self._carry_out(effects)
        if self.granted or machine.done:
            self._over = True
            self.session.contenders.discard(self)

    # --- effects ---------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Any]) -> None:
        for where, group in groupby(effects, _where):
            if where == LOCKS:
                self._queue.carry_out([at.what for at in group])
            elif where == LEASES:
                self._leases.carry_out([at.what for at in group])
            else:
                self._tell(*group)

    def _tell(self, effect: Any) -> None:
        """Tell the caller."""
        if type(effect) is e.Grant:
            self.permits = [Permit(self, machine) for machine in self.machine.permits]
            self.granted = True
            self.session.heartbeat.dismiss(self)
        elif type(effect) is e.Refuse:
            if effect.why is e.Why.BEYOND_LIMIT:
                self.error = self._limit.refusal(self._wanted)
            else:
                self.error = refusal(effect, self.session, self._queue.path, self.key)
        self._settled()


def _where(effect: Any) -> str:
    return effect.where if type(effect) is At else ""


class Permit(QueuedContender):
    """One permit of a semaphore, which is granted."""

    def __init__(self, of: SemaphoreContender, machine: Machine) -> None:
        super().__init__(
            of.session,
            of.path,
            policy=machine.policy,
            key=of.key,
            data=of.data,
            settled=of._settled,  # noqa: SLF001 - its caller is ours
        )
        self.machine = machine
        machine.me = self
        self.node, self.epoch = machine.node, machine.epoch
        self.granted = self.was_in_line = True
        self._connection = of.session.connection
        of.session.heartbeat.attend(self)
        self._attend()


class QueueWire(Wire):
    """The requests of a semaphore's contender at the queue's node."""

    where = LOCKS
    _CARRIES_OUT: ClassVar[Mapping[type, Callable[..., None]]] = Wire.REQUESTS

    def __init__(self, of: SemaphoreContender, path: str, data: bytes) -> None:
        self._of = ref(of)  # which refers to us; it lives for as long as it needs an event
        self.session = of.session
        self.path = path
        self.data = data
        self._watchers = {}
        #: The nodes that the caller deletes itself: their names and sessions.
        self._deleting: dict[str, int] = {}

    def take(self, nodes: Iterable[Node | None]) -> list[Callable[[], None]]:
        """Leave the deletion of nodes to the caller, and return what deletes them."""
        self._deleting.update((node.name, node.session_id) for node in nodes if node is not None)
        return [
            partial(self.session.delete, f"{self.path}/{name}", session_id)
            for name, session_id in self._deleting.items()
        ]

    def _delete(self, effect: e.Delete) -> None:
        if effect.name not in self._deleting:
            super()._delete(effect)

    def apply(self, event: Any) -> None:
        of = self._of()
        if of is not None:
            of.apply(At(self.where, event))


class LeasesWire(QueueWire):
    """The requests at the permits' node, whose data is the limit."""

    where = LEASES

    def carry_out(self, effects: Sequence[Any]) -> None:
        """Carry effects out: creates are alone, and one list comes after all of them."""
        for effect in effects:
            self._CARRIES_OUT[type(effect)](self, effect)

    def _make(self, effect: e.Create) -> None:
        self._create(effect, None)

    def _read_limit(self, _: s.ReadLimit) -> None:
        self.session.read(self.path, self._answer(_limit_read))

    def _write_limit(self, effect: s.WriteLimit) -> None:
        self.session.write(self.path, effect.data, effect.version, ignore)

    def _watch_permits(self, effect: s.WatchPermits) -> None:
        names = effect.names
        changed = self._watcher(_WATCHED[names], lambda _: s.PermitsChanged(names))
        answered = self._answer(answers.listed if names else _limit_read)
        self.session.watch(self.path, changed, answered, children=names)

    def _unwatch_permits(self, effect: s.UnwatchPermits) -> None:
        self._take_back(_WATCHED[effect.names], self.path, children=effect.names)

    _CARRIES_OUT: ClassVar[Mapping[type, Callable[..., None]]] = {
        **Wire.REQUESTS,
        e.Create: _make,
        s.ReadLimit: _read_limit,
        s.WriteLimit: _write_limit,
        s.WatchPermits: _watch_permits,
        s.UnwatchPermits: _unwatch_permits,
    }


def _limit_read(value: Any, error: e.Error) -> s.LimitRead:
    """Return the event of the node of the permits, which was read."""
    if error:
        return s.LimitRead(error=error)
    data, stat = value
    return s.LimitRead(data, stat.version, stat.numChildren)
