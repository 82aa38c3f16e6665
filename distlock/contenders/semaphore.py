"""Drives a caller's way to the permits of a semaphore."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from distlock.engine.reply import ignore
from distlock.keys import znodes
from distlock.queue import events as e
from distlock.queue import semaphore
from distlock.queue.policies import FAIR, Policy
from distlock.queue.states import State

from .contender import QueuedContender, listed
from .grant import remind, tell_late

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlock.queue.events import Node
    from distlock.queue.machine import Machine
    from distlock.queue.semaphore import Limit
    from distlock.session.session import Session


class SemaphoreContender(semaphore.Program["SemaphorePart"]):
    """A caller's wait at the semaphore under `path`; then it has `permits`.

    :param limit: how many permits there are
    :param wanted: how many to take, all or none
    :param key: the semaphore's, for messages
    :param data: what the nodes say of their owner
    :param settled: called, from any thread, when it is granted, busy or refused
    :param max_waiters: settle where too few permits are free, and so many wait ahead
    """

    lasts = False
    #: The end of its caller's time (`time.monotonic`).
    deadline = math.inf
    #: How many were ahead at the last look; None until the queue or the permits have been seen, and
    #: for one who tries only while it is in the queue.
    ahead: int | None = None
    #: How many waited when there were too many to wait behind.
    crowd: int | None = None
    #: Whether the queue or the permits have ever been seen.
    was_in_line = False

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
        max_waiters: float = math.inf,
    ) -> None:
        self.session = session
        self.path = f"{path}/leases"
        self.limit = limit
        self.key = key
        self.data = data
        self._settled = settled
        self._path = path
        self._prefix = znodes.protected_prefix()
        self.max_waiters = max_waiters
        super().__init__(wanted)

    def new_turn(self) -> SemaphorePart:
        self.ahead = None
        return SemaphorePart(self, f"{self._path}/locks", FAIR, semaphore.Turn)

    def new_permit(self) -> SemaphorePart:
        policy = Policy(znodes.LEASE, shared=self.limit.now > 1)
        # One stem tells lookers which permits belong together.
        machine = partial(
            semaphore.Permit, new_prefix=partial(znodes.protected_prefix, self._prefix)
        )
        return SemaphorePart(self, self.path, policy, machine)

    def settle(self) -> None:
        self.session.heartbeat.dismiss(self)
        self._settled()

    # --- for the caller --------------------------------------------------------------------------

    def join(self) -> None:
        """Come to the queue as soon as there is a connection; never blocks."""
        self.session.heartbeat.attend(self)
        self.queue.join()

    def leave(self) -> None:
        """Give up, granted or not; the nodes are deleted for certain. May be repeated."""
        self.left = True
        self.session.heartbeat.dismiss(self)
        if self.ahead is None:  # a try that ends in the queue is refused, if the queue was seen
            self.ahead = self.queue.ahead or None
        try:
            for part in self.parts:
                part.leave()
        finally:
            self.session.soon(self.leave_parts)  # the connection thread may be making one now

    @property
    def node(self) -> Node | None:
        """The node of the first permit."""
        return self.permits[0].node if self.permits else None

    @property
    def lost(self) -> bool:
        """Whether not all permits are certain any more."""
        return any(permit.lost for permit in self.permits)

    @property
    def error(self) -> Exception | None:
        """Why it gets no permits."""
        return next((part.error for part in self.parts if part.error), None)

    @property
    def asked_at(self) -> float:
        """When the server was last asked for a node (`time.monotonic`)."""
        return max(part.asked_at for part in self.parts)

    def heard(self, part: SemaphorePart) -> None:
        """Take note of what a part knows, and go on; on the connection thread."""
        if part.ahead and not (self.left or (part is self.queue and not self.max_waiters)):
            self.ahead = part.ahead
            if part is not self.queue:  # where those ahead may only be passing through
                tell_late(self)
        self.was_in_line = self.was_in_line or part.was_in_line
        self.advance()

    def deadline_renewed(self) -> None:
        """Its parts hear of that themselves."""

    def report(self) -> None:
        """Its permits report; see `remind`."""
        remind(self)


class SemaphorePart(QueuedContender):
    """The place in the queue, or a permit: given back, or lost, for itself from the grant on."""

    def __init__(
        self, of: SemaphoreContender, path: str, policy: Policy, machine: Callable[..., Machine]
    ) -> None:
        #: None when it is over: they refer to each other.
        self._of: SemaphoreContender | None = of
        self._limit = of.limit
        self._leases = of.path
        super().__init__(
            of.session,
            path,
            policy=policy,
            key=of.key,
            data=of.data,
            settled=of._settled,  # noqa: SLF001 - its caller is ours
            max_waiters=of.max_waiters,
            machine=partial(machine, limit=of.limit, wanted=of.wanted),
        )

    def apply(self, event: e.Event) -> None:
        of = self._of
        super().apply(event)
        if self.machine.state is State.LEFT:
            self._of = None
        if of is not None:
            of.heard(self)

    # --- effects ---------------------------------------------------------------------------------

    def _grant(self, _: e.Grant) -> None:
        self.epoch = self.machine.epoch
        self.granted = True  # of which the caller hears when all are granted

    def _busy(self, effect: e.Busy) -> None:
        if self._of is not None:
            self._of.ahead = self.machine.ahead
            self._of.crowd = effect.waiting
        self._settled()

    def _refuse(self, effect: e.Refuse) -> None:
        if effect.why is e.Why.BEYOND_LIMIT:
            self.error = self._limit.refusal(cast("semaphore.Limited", self.machine).wanted)
            self._settled()
        else:
            super()._refuse(effect)

    def _read_limit(self, _: e.ReadLimit) -> None:
        self.session.read(self._leases, self._answer(_limit_read))

    def _read_kept(self, _: e.ReadKept) -> None:
        kept = f"{self._leases.rpartition('/')[0]}/{semaphore.KEPT}"
        self.session.read(kept, self._answer(_kept_read))

    def _make_permits(self, effect: e.MakePermits) -> None:
        made = self._answer(lambda _, error: e.LineMade(error))
        self.session.create_containers(self.path, made, effect.data)

    def _watch_limit(self, _: e.WatchLimit) -> None:
        changed = self._watcher(e.LIMIT, partial(e.Changed, e.LIMIT))
        self.session.watch(self.path, changed, self._answer(_limit_read))

    def _watch_names(self, _: e.WatchNames) -> None:
        changed = self._watcher(e.NAMES, partial(e.Changed, e.NAMES))
        self.session.watch(self.path, changed, self._answer(listed), children=True)

    def _unwatch(self, effect: e.Unwatch) -> None:
        if effect.name in (e.LIMIT, e.NAMES):
            self._take_back(effect.name, self.path, children=effect.name == e.NAMES)
        else:
            super()._unwatch(effect)

    def _write_limit(self, effect: e.WriteLimit) -> None:
        self.session.write(self._leases, effect.data, effect.version, ignore)

    _CARRIES_OUT: ClassVar[Mapping[type, Callable[..., None]]] = {
        **QueuedContender._CARRIES_OUT,  # noqa: SLF001 - of its base
        e.Unwatch: _unwatch,
        e.Grant: _grant,
        e.Busy: _busy,
        e.Refuse: _refuse,
        e.ReadLimit: _read_limit,
        e.ReadKept: _read_kept,
        e.MakePermits: _make_permits,
        e.WatchLimit: _watch_limit,
        e.WatchNames: _watch_names,
        e.WriteLimit: _write_limit,
    }


def _kept_read(value: Any, error: e.Error) -> e.KeptRead:
    return e.KeptRead(error=error) if error else e.KeptRead(value[0])


def _limit_read(value: Any, error: e.Error) -> e.LimitRead:
    if error:
        return e.LimitRead(error=error)
    data, stat = value
    return e.LimitRead(data, stat.version, stat.numChildren)
