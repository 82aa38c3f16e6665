"""Acquires and releases permits, for `semaphore` and `semaphore_mutex`.

A permit has no owner. It belongs to the process, and any of its threads or tasks may release it. So
nothing here is reentrant, two objects on one key are one semaphore, and `held_permits` keeps the
permits of this process by key. `semaphore_queue` decides whose turn it is.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from distlock import signals
from distlock.conf import UNSET, configuration, positive_seconds, seconds, wait_limit
from distlock.engine.client import NoNode
from distlock.exceptions import LockBusy, LockLost, NotOwner
from distlock.inspection.tree import participants
from distlock.keys import templates, znodes
from distlock.owner.hold import TOO_LATE, Held, Hold, lost
from distlock.owner.owner import current
from distlock.queue.semaphore_queue import SemaphorePlace
from distlock.queue.waiting import Attempt, wait, wait_async
from distlock.session.registry import session_for

from . import cancellation
from .held_permits import HeldPermits, claim, forget, keep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from distlock.keys.znodes import NodeName, Participant
    from distlock.owner.owner import Owner
    from distlock.queue.contender import Node
    from distlock.queue.semaphore_limits import Limit
    from distlock.session.session import Session

_T = TypeVar("_T")


class Permits:
    """Acquires and releases permits, for the semaphore and its mutex."""

    #: No semaphore is made from a template.
    template = ""

    def __init__(
        self,
        key: str,
        limit: Limit,
        *,
        timeout: Any,
        using: str,
        max_hold: Any,
        cancel_on_loss: bool,
    ) -> None:
        self.key = key = templates.plain_text(key)
        self.using = using
        self._name = templates.znode_name(key)
        self._timeout = timeout if timeout is UNSET else seconds(timeout)
        self._limit = limit
        self._max_hold = positive_seconds(max_hold, "max_hold")
        self._cancel_on_loss = cancel_on_loss

    def __enter__(self) -> Hold:
        if self._cancel_on_loss:
            cancellation.refuse_without_block(self)
        return self._take(self._permits(current()), 1, True, UNSET, self._entered)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        returned: list[Held] = []
        try:
            self._give_back(self._permits(current()), 1, returned)
        except (LockLost, NotOwner):
            if error is None:  # the body's own takes precedence
                raise
        except BaseException:  # a soft time limit landed here
            if not returned:
                self._give_back(self._permits(current()), 1, returned)
            raise

    async def __aenter__(self) -> Hold:
        then = self._entered_cancellable if self._cancel_on_loss else self._entered
        return await self._atake(self._permits(current()), 1, True, UNSET, then)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loss = cancellation.end(self, error) if self._cancel_on_loss else None
        self.__exit__(kind, error, traceback)
        if loss is not None:
            raise loss from error

    # --- looking ---------------------------------------------------------------------------------

    def locked(self) -> bool:
        """Whether all permits are in use. Asks the server.

        :raises LockUnavailable: ZooKeeper did not answer in time
        """
        session = session_for(self.using)
        path, timeout = f"{self._path(session)}/leases", session.conf.connect_timeout
        try:
            data, stat = session.call(session.read, path, timeout=timeout, key=self.key)
        except NoNode:
            return False
        self._limit.read(data)
        return bool(stat.numChildren >= self._limit.now)

    def participants(self) -> list[Participant]:
        """Return the holders, once for each permit, the oldest first. Asks the server.

        The first waiter is among them, with the permits for which it waits.

        :raises LockUnavailable: ZooKeeper did not answer in time
        """
        return self._standing("leases", znodes.leases)

    def waiters(self) -> list[Participant]:
        """Return the waiters in their order. Asks the server.

        :raises LockUnavailable: ZooKeeper did not answer in time
        """
        return self._standing("locks", znodes.in_line)

    def _standing(
        self, where: str, order: Callable[[Iterable[str]], list[NodeName]]
    ) -> list[Participant]:
        session = session_for(self.using)
        path = f"{self._path(session)}/{where}"
        timeout = session.conf.connect_timeout
        return participants(session, path, key=self.key, timeout=timeout, order=order)

    # --- how it works ----------------------------------------------------------------------------

    def _path(self, session: Session) -> str:
        return f"{session.root}/{self._name}"

    def _permits(self, owner: Owner | None = None) -> HeldPermits:
        return self.using, self._name, owner

    def _take(
        self,
        permits: HeldPermits,
        wanted: int,
        blocking: bool,
        timeout: Any,
        then: Callable[[Hold | Attempt], _T],
    ) -> _T:
        """Call `then` with the first hold, or with the refused attempt, and return its result.

        A soft time limit or Ctrl-C may land between any two steps, also after the grant. Then this
        call gives its permits back.
        """
        taken: list[Held] = []
        try:
            return then(wait(*self._line(permits, wanted, blocking, timeout, taken)))
        except BaseException:
            self._undo(permits, taken)
            raise

    async def _atake(
        self,
        permits: HeldPermits,
        wanted: int,
        blocking: bool,
        timeout: Any,
        then: Callable[[Hold | Attempt], _T],
    ) -> _T:
        taken: list[Held] = []
        try:
            return then(await wait_async(*self._line(permits, wanted, blocking, timeout, taken)))
        except BaseException:
            self._undo(permits, taken)
            raise

    def _line(
        self, permits: HeldPermits, wanted: int, blocking: bool, timeout: Any, taken: list[Held]
    ) -> tuple[Callable[..., SemaphorePlace], float | None, Callable[[Attempt], Hold | Attempt]]:
        """Return the arguments of `wait`: the place to take, the time limit, and the next step."""
        conf = configuration(self.using)
        limit = wait_limit(True, timeout, self._timeout, self.using) if blocking else 0.0
        session = session_for(self.using)
        place_for = partial(
            SemaphorePlace,
            session,
            self._path(session),
            limit=self._limit,
            wanted=wanted,
            key=self.key,
            data=current().describe(conf),
            try_only=limit == 0,
        )
        return place_for, limit, partial(self._conclude, permits, taken)

    def _conclude(
        self, permits: HeldPermits, taken: list[Held], attempt: Attempt
    ) -> Hold | Attempt:
        if signals.outcome(attempt, type(self), self) is None:
            return attempt
        for permit in cast("SemaphorePlace", attempt.place).permits:
            node = cast("Node", permit.node)
            held = Held(Hold(self.key, node, permit, using=self.using), permit)
            taken.append(held)
            keep(permits, held)
            permit.listen(partial(signals.announce_change, type(self), held.hold))
            if self._max_hold is not None:
                permit.give_up_after(self._max_hold)
            self._announce(signals.lock_acquired, held.hold, waited=attempt.waited)
        return taken[0].hold

    def _give_back(self, permits: HeldPermits, count: int, returned: list[Held]) -> None:
        """Release the latest `count` of these permits, and add them to `returned`.

        Two threads at once each release their own. An interrupted call still releases.
        """
        try:
            there = claim(permits, count, returned)
            for held in returned:
                self._end(held)
        except BaseException:
            for held in returned:
                forget(permits, held)
                held.place.leave()
            raise
        if not there:
            raise NotOwner(
                f"{count} of {self.key!r} cannot be released: this process has not acquired as "
                "many, or has released them before. Release once for each acquire; a `with` block "
                "does so by itself, and a forked child has none of its parent's permits."
            )
        first = next((held.hold for held in returned if held.hold.lost), None)
        if first is not None:
            raise lost(first, TOO_LATE)

    def _undo(self, permits: HeldPermits, taken: list[Held]) -> None:
        for held in taken:
            held.place.leave()
            if forget(permits, held):
                self._end(held)

    def _end(self, held: Held) -> None:
        held.hold.lost  # noqa: B018 - settles it before the node goes
        held.place.leave()
        held.place.report()
        held_for = time.monotonic() - held.started
        self._announce(signals.lock_released, held.hold, held_for=held_for)

    def _announce(self, signal: Any, hold: Hold, **facts: Any) -> None:
        signals.announce(signal, type(self), hold, hold=hold, **facts)

    def _entered(self, outcome: Hold | Attempt) -> Hold:
        if isinstance(outcome, Hold):
            return outcome
        raise LockBusy(
            f"{self!r} is busy after {outcome.waited:.1f} s: all permits are taken. Try again "
            "later, or wait longer with timeout=.",
            key=self.key,
            waited=outcome.waited,
            retry_after=configuration(self.using).retry_after,
            using=self.using,
        )

    def _entered_cancellable(self, outcome: Hold | Attempt) -> Hold:
        hold = self._entered(outcome)
        cancellation.begin(self, [hold])
        return hold


def is_hold(outcome: Hold | Attempt) -> bool:
    return isinstance(outcome, Hold)
