"""Provides leases: locks with an expiry, for work that outlives a process.

A lease belongs to an *owner id*, a text, and not to a thread or a session. It may run, for example,
from the publication of a task to its end, through several processes. Any code that knows the id is
the owner. The lease ends when an owner releases it, or when nobody has renewed it for its `ttl`.
Then somebody else may take it over, with a higher fencing token. Waiters do not queue: any of them
may be next.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from distlock import signals
from distlock.conf import UNSET, configuration, seconds, wait_limit
from distlock.contenders.waiting import Attempt
from distlock.engine.calls import Call
from distlock.exceptions import (
    DistlockError,
    LockBusy,
    LockInTransaction,
    NotOwner,
)
from distlock.keys import templates
from distlock.owner.owner import current
from distlock.session.registry import session_for
from distlock.transactions import end_statements, refuse_open_transaction

from .hold import (
    Block,
    Identity,
    LeaseHold,
    after_body,
    forget,
    forgotten_if_lost,
    known,
    note,
)
from .nodes import LeaseHolder, check_owner, check_ttl
from .operation import LeaseAcquisition, LeaseOperation, Renewal, Return, in_background
from .sweep import sweep

__all__ = ["LeaseHold", "LeaseHolder", "PersistentLease", "sweep", "zk_lease"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from distlock.engine.calls import Steps, Wake

_T = TypeVar("_T")
_V = TypeVar("_V", bound=LeaseOperation)


class PersistentLease:
    """A lock that belongs to an owner id, outlives processes, and ends by itself if not renewed.

    `zk_lease` makes it. As a context manager it yields a `LeaseHold`. Threads may share it.
    """

    template = ""  #: `zk_locked` makes no leases.

    def __init__(
        self,
        key: str,
        ttl: float | timedelta,
        *,
        owner: str | None = None,
        timeout: Any = UNSET,
        using: str = "default",
    ) -> None:
        self.key = key = templates.plain_text(key)
        self.ttl = check_ttl(ttl)
        self.owner = check_owner(owner)
        self.using = using
        self._name = templates.znode_name(key)
        self._timeout = timeout if timeout is UNSET else seconds(timeout)
        self._blocks: list[Block] = []

    def __repr__(self) -> str:
        return f"zk_lease({self.key!r}, {self.ttl:g}, owner={self.owner!r}, using={self.using!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is in none of the running blocks.
        how: dict[str, Any] = {"timeout": self._timeout, "using": self.using}
        return partial(zk_lease, self.key, self.ttl, owner=self.owner, **how), ()

    # --- acquire, renew, release -----------------------------------------------------------------

    def acquire(self, blocking: bool = True, timeout: Any = UNSET) -> bool:
        """Take the lease, or renew it if the owner has it; return False if it is busy.

        Acquires are not counted: one release ends the lease.

        :param blocking: False tries once
        :param timeout: seconds (number or timedelta) to wait, 0 to try once, None for ever; by
            default the lease's own, and then the setting ``TIMEOUT`` (5 s)
        :raises LockUnavailable: the lock server did not answer in time, or refused
        :raises TypeError: the lease has no ``owner=``
        """
        return self._acquisition(blocking, timeout).run() is not None

    async def aacquire(self, blocking: bool = True, timeout: Any = UNSET) -> bool:
        """Take the lease as `acquire` does, without a thread for the wait."""
        return await self._acquisition(blocking, timeout).arun() is not None

    def renew(self, ttl: float | timedelta | None = None) -> LeaseHold:
        """Renew the lease from now on, with the same token, in any process of the owner.

        :param ttl: seconds (number or timedelta); by default the lease's own, or the current one if
            that is longer
        :raises LockLost: somebody else has it now, or it was released
        :raises LockUnavailable: the lock server did not answer within ``CONNECT_TIMEOUT``, or
            refused
        """
        return self._renewal(ttl).run()

    async def arenew(self, ttl: float | timedelta | None = None) -> LeaseHold:
        """Renew the lease as `renew` does."""
        return await self._renewal(ttl).arun()

    def release(self) -> None:
        """Release the lease, in any process of the owner.

        :raises NotOwner: this owner does not have it, or no longer
        :raises LockUnavailable: the lock server did not answer within ``CONNECT_TIMEOUT``, or
            refused: release again, or leave the lease to its expiry
        """
        self._return().run()

    async def arelease(self) -> None:
        """Release the lease as `release` does."""
        await self._return().arun()

    @property
    def held(self) -> bool:
        """Whether the owner has the lease, as far as this process knows; never uses the network."""
        hold = known(self._identity())
        return hold is not None and hold.valid_for() > 0

    # --- blocks ----------------------------------------------------------------------------------

    def __enter__(self) -> LeaseHold:
        return self._beginning().run()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        block = None
        try:
            block = Block.innermost(self._blocks)
            call = self._ending(block, error)
            if call is not None:
                call.run()
        except BaseException as failure:
            self._abandon(block or Block.innermost(self._blocks), failure)
            raise

    async def __aenter__(self) -> LeaseHold:
        return await self._beginning().arun()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        block = None
        try:
            block = Block.innermost(self._blocks)
            call = self._ending(block, error)
            if call is not None:
                await call.arun()
        except BaseException as failure:
            self._abandon(block or Block.innermost(self._blocks), failure)
            raise

    # --- looking ---------------------------------------------------------------------------------

    def locked(self) -> bool:
        """Whether anybody has the lease. Asks the server."""
        return self.holder() is not None

    def holder(self) -> LeaseHolder | None:
        """Return the owner of the lease, None if it is free or has ended. Asks the server.

        :raises LockUnavailable: the lock server did not answer within ``CONNECT_TIMEOUT``, or
            refused
        """

        def seen(attempt: Attempt[Any]) -> LeaseHolder | None:
            look: LeaseOperation = attempt.contender
            attempt.outcome()
            return None if look.ended else look.holder

        maker = self._maker(LeaseOperation, (self.using, self._name, ""), None)
        return self._asking(maker, seen).run()

    # --- how it works ----------------------------------------------------------------------------

    def _beginning(self) -> Call[LeaseHold]:
        """Return the call that begins a block."""
        return cast("Call[LeaseHold]", self._acquisition(block=Block(self._blocks)))

    def _acquisition(
        self, blocking: bool = True, timeout: Any = UNSET, *, block: Block | None = None
    ) -> Call[LeaseHold | None]:
        """Return the call that takes the lease. It returns None if the lease is busy.

        :param block: begins with the grant; with a block, a busy lease raises
        """
        identity = self._identity()
        hold = known(identity)
        if block is not None:
            self._refuse_open_transaction(hold)
        elif self.owner is None:
            raise TypeError(
                f"The lease {self.key!r} has no owner, so nobody could release it after this "
                "thread. Name one, such as zk_lease(…, owner=task_id), or use `with`."
            )
        limit = wait_limit(blocking, timeout, self._timeout, self.using)

        def taken(attempt: Attempt[Any]) -> LeaseHold | None:
            operation: LeaseAcquisition = attempt.contender
            if attempt.announced(PersistentLease, self) is None:
                if block is not None:
                    raise self._busy(operation, attempt)
                return None
            hold = note(identity, operation, sender=PersistentLease)
            if operation.fresh:
                hold.waited = attempt.waited
                signals.announce(
                    signals.lock_acquired,
                    PersistentLease,
                    hold,
                    hold=hold,
                    waited=hold.waited,
                )
            if block is not None:
                block.enter(hold)
            return hold

        def undo() -> None:
            if block is not None:
                block.leave()
            attempt.give_up()
            if getattr(attempt, "contender", None) and attempt.contender.fresh:
                forget(identity)

        options = {"ttl": self.ttl, "try_only": limit == 0}
        attempt: Attempt[Any] = Attempt(
            self._maker(LeaseAcquisition, identity, hold, **options), limit
        )
        return Call(partial(_steps, attempt, taken), undo)

    def _renewal(self, ttl: float | timedelta | None) -> Call[LeaseHold]:
        identity = self._identity()
        hold = known(identity)
        ttl, explicit = (self.ttl, False) if ttl is None else (check_ttl(ttl), True)

        def renewed(attempt: Attempt[Any]) -> LeaseHold:
            with forgotten_if_lost(identity, hold):
                attempt.outcome()
            return note(identity, attempt.contender, sender=PersistentLease)

        maker = self._maker(Renewal, identity, hold, ttl=ttl, shorten=explicit)
        return self._asking(maker, renewed)

    def _return(
        self, hold: LeaseHold | None = None, within: AbstractContextManager[None] | None = None
    ) -> Call[None]:
        """Return the call that releases the owner's lease, or only this hold of a block.

        :param within: surrounds the end
        """
        end_statements()
        identity = self._identity() if hold is None else (self.using, self._name, hold.owner)
        returned = hold or known(identity)

        def done(attempt: Attempt[Any]) -> None:
            with within or nullcontext():
                with forgotten_if_lost(identity, returned):
                    attempt.outcome()
                if returned is not None:
                    forget(identity, returned)
                    returned.end()

        maker = self._maker(Return, identity, returned, only_known=hold is not None)
        return self._asking(maker, done)

    def _asking(
        self, maker: Callable[..., LeaseOperation], then: Callable[[Attempt[Any]], _T]
    ) -> Call[_T]:
        """Return the call of an operation that waits for nobody but the server."""
        attempt: Attempt[Any] = Attempt(maker, configuration(self.using).connect_timeout)
        return Call(partial(_steps, attempt, then), attempt.give_up)

    def _identity(self) -> Identity:
        return self.using, self._name, self.owner or current().id

    def _maker(
        self, kind: type[_V], identity: Identity, hold: LeaseHold | None, **options: Any
    ) -> Callable[..., _V]:
        """Return what makes the operation, given what wakes its caller."""

        def make(settled: Wake) -> _V:
            if issubclass(kind, Renewal):
                options["said"] = json.loads(current().describe(configuration(self.using)))
            return kind(
                session_for(self.using),
                self._name,
                key=self.key,
                owner=identity[2],
                known=hold.term if hold else None,
                settled=settled,
                **options,
            )

        return make

    def _refuse_open_transaction(self, hold: LeaseHold | None) -> None:
        if hold is not None and hold.blocks:
            return
        if configuration(self.using).in_transaction == "raise":
            try:
                refuse_open_transaction(self.key)
            except LockInTransaction:
                raise LockInTransaction(
                    f"The block with the lease {self.key!r} cannot begin inside an open "
                    "transaction: it would end before COMMIT, and the next owner would read the "
                    "old rows. Begin the transaction inside the block; or acquire() with an owner, "
                    "and release() in transaction.on_commit()."
                ) from None

    # --- blocks ----------------------------------------------------------------------------------

    def _abandon(self, block: Block | None, failure: BaseException) -> None:
        """End a block whose end was interrupted, and release its lease without waiting."""
        if isinstance(failure, DistlockError):  # the release has ended so
            return
        if block is None or not block.leave():
            return
        hold = block.hold
        if hold is not None and not hold.released:
            identity = self.using, self._name, hold.owner
            operation = self._maker(Return, identity, hold, only_known=True)(lambda: None)
            in_background(operation.session, operation.program())
            forget(identity, hold)
            hold.end()

    def _ending(self, block: Block | None, error: BaseException | None) -> Call[None] | None:
        """Return the call that ends a block, or None if another block still needs the lease."""
        if block is None or block.hold is None:
            raise NotOwner(
                f"No block with the lease {self.key!r} began here: a block ends in the thread or "
                "task that began it, and not in a forked child."
            )
        hold, last = block.hold, block.leave()
        if not last or hold.released:
            return None
        return self._return(hold, after_body(hold, error, proven=hold.valid_for() > 0))

    def _busy(self, operation: LeaseAcquisition, attempt: Attempt[Any]) -> LockBusy:
        return LockBusy(
            f"The lease {self.key!r} is busy after {attempt.waited:.1f} s. It is held by "
            f"{operation.holder}. Try again later, or wait longer with timeout=.",
            key=self.key,
            holder=operation.holder,
            waited=attempt.waited,
            retry_after=configuration(self.using).retry_after,
            using=self.using,
        )


def _steps(attempt: Attempt[Any], then: Callable[[Attempt[Any]], _T], wake: Wake) -> Steps[_T]:
    """Drive an operation to its end or that of its time, and return the result of `then`."""
    attempt.begin(wake).join()
    while True:
        rest = attempt.contender.proceed()
        seconds = attempt.patience()
        if seconds is None:
            return then(attempt)
        yield min(seconds, rest)


def zk_lease(
    key: str,
    ttl: float | timedelta,
    *,
    owner: str | None = None,
    timeout: Any = UNSET,
    using: str = "default",
) -> PersistentLease:
    """Return the lease named `key`: a lock that outlives processes and ends by itself.

    ::

        lease = zk_lease("export", ttl=600, owner=task_id)
        lease.acquire()  # here, before the task is published
        lease.renew()  # in the worker, now and then
        lease.release()  # in the worker, at the end

    :param key: the name of the lease; a `zk_lock` on the same key is another lock
    :param ttl: the seconds (number or timedelta) that it lasts without a renewal
    :param owner: the owner id, at most 200 characters. Any code that knows it is the owner; it is
        no secret. Without one, a ``with`` block belongs to its thread or task
    :param timeout: seconds to wait (number or timedelta), 0 to try once, None for ever; by default
        the setting ``TIMEOUT`` (5 s)
    :param using: the alias in ``DISTLOCK``
    :raises LockKeyError: `key` is empty or no valid text
    :raises ValueError: a `ttl` of 0, less, or more than a year; an empty or unprintable `owner`
    :raises TypeError: a `ttl` that is no time, an `owner` that is no text
    """
    return PersistentLease(
        templates.literal_key(key), ttl, owner=owner, timeout=timeout, using=using
    )
