"""Acquires and releases permits, for `semaphore` and `semaphore_mutex`.

A permit has no owner. It belongs to the process, and any of its threads or tasks may release it. So
nothing here is reentrant, two objects on one key are one semaphore, and `held_permits` keeps the
permits of this process by key. `contenders.semaphore` waits for them.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from distlock import signals
from distlock.conf import configuration, wait_limit
from distlock.contenders.semaphore import SemaphoreContender
from distlock.contenders.waiting import Attempt
from distlock.engine.calls import Call
from distlock.engine.errors import NoNode
from distlock.exceptions import LockBusy, LockLost, NotOwner
from distlock.inspection.tree import participants
from distlock.keys import templates, znodes
from distlock.owner.hold import TOO_LATE, Held, Hold, lost
from distlock.owner.owner import current
from distlock.session.registry import session_for
from distlock.transactions import end_statements

from .held_permits import HeldPermits, claim, forget, keep, on
from .lock import BlockEnd, KeyLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from distlock.keys.znodes import NodeName, Participant
    from distlock.owner.owner import Owner
    from distlock.queue.events import Node
    from distlock.queue.semaphore.limits import Limit
    from distlock.session.session import Session

    from .lock import Options

    Awaited: TypeAlias = Attempt[SemaphoreContender]


class Permits(KeyLock):
    """Acquires and releases permits, for the semaphore and its mutex."""

    #: No semaphore is made from a template.
    template = ""

    def __init__(self, key: str, limit: Limit, options: Options) -> None:
        self.key = key = templates.plain_text(key)
        self.options = options
        self.using = options.using
        self._name = templates.znode_name(key)
        self._limit = limit

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

    # --- looking ---------------------------------------------------------------------------------

    def locked(self) -> bool:
        """Whether all permits are in use. Asks the server.

        :raises LockUnavailable: the lock server did not answer in time
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

        :raises LockUnavailable: the lock server did not answer in time
        """
        return self._standing("leases", znodes.leases)

    def waiters(self) -> list[Participant]:
        """Return the waiters in their order. Asks the server.

        :raises LockUnavailable: the lock server did not answer in time
        """
        return self._standing("locks", znodes.in_line)

    def _standing(
        self, where: str, order: Callable[[Iterable[str]], list[NodeName]]
    ) -> list[Participant]:
        session = session_for(self.using)
        path = f"{self._path(session)}/{where}"
        timeout = session.conf.connect_timeout
        return list(participants(session, path, key=self.key, timeout=timeout, order=order))

    # --- together with others --------------------------------------------------------------------

    @property
    def rank(self) -> tuple[str, str, str]:
        """The rank of the lock in the global order.

        :meta private:
        """
        return self.using, self._name, "semaphore"

    def block_end(self) -> BlockEnd:
        """Return the end of a block.

        :meta private:
        """
        permits = self._permits(current())
        left = max(len(on(permits)) - 1, 0)

        def undo() -> None:
            self._undo(permits, on(permits)[left:])

        return BlockEnd(partial(self._give_back, permits, 1, []), undo)

    # --- how it works ----------------------------------------------------------------------------

    def _path(self, session: Session) -> str:
        return f"{session.root}/{self._name}"

    def _permits(self, owner: Owner | None = None) -> HeldPermits:
        return self.using, self._name, owner

    def _call(
        self,
        owner: Owner,
        blocking: bool,
        timeout: Any,
        entered: Callable[[Hold], object] | None = None,
        *,
        wanted: int = 1,
    ) -> Call[Hold | None]:
        permits = self._permits(None if entered is None else owner)
        attempt = self._attempt(owner, wanted, blocking, timeout)
        taken: list[Held] = []
        return Call(
            partial(attempt.steps, partial(self._taken, permits, taken, entered)),
            partial(self._undo, permits, taken, attempt),
        )

    def _taken(
        self,
        permits: HeldPermits,
        taken: list[Held],
        entered: Callable[[Hold], object] | None,
        attempt: Awaited,
    ) -> Hold | None:
        """Return the first hold, None if the permits are in use."""
        hold = self._conclude(permits, taken, attempt)
        if entered is not None:
            if hold is None:
                raise self._busy(attempt)
            entered(hold)
        return hold

    def _undo(
        self, permits: HeldPermits, taken: list[Held], attempt: Awaited | None = None
    ) -> None:
        if attempt is not None:
            attempt.give_up()
        for held in taken:
            held.grant.leave()
            if forget(permits, held):
                self._end(held)

    def _attempt(self, owner: Owner, wanted: int, blocking: bool, timeout: Any) -> Awaited:
        conf = configuration(self.using)
        limit = wait_limit(True, timeout, self.options.timeout, self.using) if blocking else 0.0
        session = session_for(self.using)
        contender_for = partial(
            SemaphoreContender,
            session,
            self._path(session),
            limit=self._limit,
            wanted=wanted,
            key=self.key,
            data=owner.describe(conf),
            try_only=limit == 0,
        )
        return Attempt(contender_for, limit)

    def _conclude(self, permits: HeldPermits, taken: list[Held], attempt: Awaited) -> Hold | None:
        if attempt.announced(type(self), self) is None:
            return None
        for permit in attempt.contender.permits:
            node = cast("Node", permit.node)
            path = f"{permit.path}/{node.name}"
            hold = Hold(self.key, path, node.token, permit, using=self.using)
            hold.waited = attempt.waited
            held = Held(type(self), hold, permit)
            taken.append(held)
            keep(permits, held)
            if self.options.max_hold is not None:
                permit.give_up_after(self.options.max_hold)
            signals.announce(
                signals.lock_acquired,
                type(self),
                held.hold,
                hold=held.hold,
                waited=hold.waited,
            )
        return taken[0].hold

    def _give_back(self, permits: HeldPermits, count: int, returned: list[Held]) -> None:
        """Release the latest `count` of these permits, and add them to `returned`.

        Two threads at once each release their own. An interrupted call still releases.
        """
        if sys.exc_info()[0] is not None:
            end_statements()
        try:
            there = claim(permits, count, returned)
            for held in returned:
                self._end(held)
        except BaseException:
            for held in returned:
                forget(permits, held)
                held.grant.leave()
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

    def _end(self, held: Held) -> None:
        held.hold.lost  # noqa: B018 - settles it before the node goes
        held.grant.leave()
        held.announce_end()

    def _busy(self, attempt: Awaited) -> LockBusy:
        return LockBusy(
            f"{self!r} is busy after {attempt.waited:.1f} s: all permits are taken. Try again "
            "later, or wait longer with timeout=.",
            key=self.key,
            waited=attempt.waited,
            retry_after=configuration(self.using).retry_after,
            using=self.using,
        )
