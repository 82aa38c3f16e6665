"""Provides leases: locks with an expiry, for work that outlives a process.

A lease belongs to an *owner id*, a text, and not to a thread or a session: any code that knows the
id is the owner. It ends when an owner releases it, or when nobody has renewed it for its `ttl`.
Then somebody else may take it over, with a higher fencing token. Waiters do not queue.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from distlock import signals
from distlock.conf import UNSET, configuration, prefixed, refuse_other_prefix, seconds, wait_limit
from distlock.engine.calls import Call, Steps, Wake
from distlock.engine.errors import BadVersion, NoNode
from distlock.exceptions import DistlockError, LockInTransaction, LockLost, NotOwner
from distlock.keys import templates
from distlock.logs.loggers import logger
from distlock.owner.owner import current
from distlock.session.programs import Request, each, in_background
from distlock.session.registry import session_for
from distlock.signals import announce
from distlock.transactions import end_statements, refuse_open_transaction

from .hold import Block, Identity, LeaseHold, forget, has_blocks, innermost, known, note, note_loss
from .nodes import LeaseHolder, Term, check_owner, check_ttl, parent_of_leases
from .operation import Operation, remove

__all__ = ["LeaseHold", "LeaseHolder", "PersistentLease", "sweep", "zk_lease"]


class PersistentLease:
    """A lock that belongs to an owner id, outlives processes, and ends by itself if not renewed.

    `zk_lease` makes it. As a context manager it yields a `LeaseHold`. Threads may share it.
    """

    template = ""  #: `zk_locked` makes no leases.
    #: Whether the key has the ``KEY_PREFIX``. Messages carry whole keys, whatever their tenant.
    has_prefix = False

    def __init__(
        self,
        key: str,
        ttl: float | timedelta,
        *,
        owner: str | None = None,
        timeout: float | timedelta | None = UNSET,
        using: str = "default",
    ) -> None:
        self.key = key = templates.plain_text(key)
        self.ttl = check_ttl(ttl)
        self.owner = check_owner(owner)
        self.using = using
        self._name = templates.znode_name(key)
        self._timeout = timeout if timeout is UNSET else seconds(timeout)

    def __repr__(self) -> str:
        return f"zk_lease({self.key!r}, {self.ttl:g}, owner={self.owner!r}, using={self.using!r})"

    def acquire(self, blocking: bool = True, timeout: float | timedelta | None = UNSET) -> bool:
        """Take the lease, or renew it if the owner has it; return False if it is busy.

        Acquires are not counted: one release ends the lease.

        :param blocking: False tries once
        :param timeout: seconds (number or timedelta) to wait, 0 to try once, None for ever; by
            default the lease's own, and then the setting ``TIMEOUT`` (5 s)
        :raises LockUnavailable: the lock server did not answer in time, or refused
        :raises TypeError: the lease has no ``owner=``
        """
        return self._acquisition(blocking, timeout).run() is not None

    async def aacquire(
        self, blocking: bool = True, timeout: float | timedelta | None = UNSET
    ) -> bool:
        """Take the lease as `acquire` does, without a thread for the wait."""
        return await self._acquisition(blocking, timeout).arun() is not None

    def renew(self, ttl: float | timedelta | None = None) -> LeaseHold:
        """Renew the lease from now on, with the same token, in any process of the owner.

        :param ttl: seconds (number or timedelta); by default the lease's own, or the current one if
            that is longer
        :raises LockLost: somebody else has it now, or it was released
        :raises LockUnavailable: the lock server did not answer in time, or refused
        """
        return self._renewal(ttl).run()

    async def arenew(self, ttl: float | timedelta | None = None) -> LeaseHold:
        """Renew the lease as `renew` does."""
        return await self._renewal(ttl).arun()

    def release(self) -> None:
        """Release the lease, in any process of the owner.

        :raises NotOwner: this owner does not have it, or no longer
        :raises LockUnavailable: the lock server did not answer in time, or refused: release again,
            or leave the lease to its expiry
        """
        self._return().run()

    async def arelease(self) -> None:
        """Release the lease as `release` does."""
        await self._return().arun()

    @property
    def held(self) -> bool:
        """Whether the owner has the lease, as far as this process knows; never uses the network."""
        hold = known.get(self._identity())
        return hold is not None and hold.valid_for() > 0

    def __enter__(self) -> LeaseHold:
        return self._acquisition(in_block=True).run()  # type: ignore[return-value]  # or raises

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        block = None
        try:
            block = innermost(self)
            call = self._ending(block, error)
            if call is not None:
                call.run()
        except BaseException as failure:
            self._abandon(block or innermost(self), failure)
            raise

    async def __aenter__(self) -> LeaseHold:
        return await self._acquisition(in_block=True).arun()  # type: ignore[return-value]  # or raises

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        block = None
        try:
            block = innermost(self)
            call = self._ending(block, error)
            if call is not None:
                await call.arun()
        except BaseException as failure:
            self._abandon(block or innermost(self), failure)
            raise

    def locked(self) -> bool:
        """Whether anybody has the lease. Asks the server."""
        return self.holder() is not None

    def holder(self) -> LeaseHolder | None:
        """Return the owner of the lease, None if it is free or has ended. Asks the server.

        :raises LockUnavailable: the lock server did not answer in time, or refused
        """
        operation = self._operation((self.using, self._name, ""))
        return operation.call(operation.look()).run()

    def _acquisition(
        self, blocking: bool = True, timeout: Any = UNSET, *, in_block: bool = False
    ) -> Call[LeaseHold | None]:
        """Return the call that takes the lease; a busy one returns None, or raises for a block."""
        identity = self._identity()
        hold = known.get(identity)
        block: Block | None = None
        if self.has_prefix:
            refuse_other_prefix(self.key, self.using)
        if in_block:
            self._refuse_open_transaction(hold)
        elif self.owner is None:
            raise TypeError(
                f"The lease {self.key!r} has no owner, so nobody could release it after this "
                "thread. Name one, such as zk_lease(…, owner=task_id), or use `with`."
            )
        limit = wait_limit(blocking, timeout, self._timeout, self.using)
        operation = self._operation(identity, hold, limit)

        def steps(wake: Wake) -> Steps[LeaseHold | None]:
            try:
                granted = yield from operation.steps(operation.acquire(self.ttl), wake)
            except DistlockError as error:
                operation.tell(PersistentLease, self, error)
                raise
            waited = operation.waited
            if not granted:
                operation.leave()
                operation.tell(PersistentLease, self, None)
                if in_block:
                    by = f". It is held by {operation.holder}"
                    raise operation.busy(f"The lease {self.key!r}", by, operation.holder)
                return None
            nonlocal block
            hold = note(identity, operation, sender=PersistentLease)
            if operation.taken:
                hold.waited = waited
                announce(signals.lock_acquired, PersistentLease, hold, hold=hold, waited=waited)
            if in_block:
                block = Block(self, hold)
                block.begin()
            return hold

        def undo() -> None:
            if block is not None:
                block.end()
            if operation.reached:
                forget(identity)
            operation.leave()

        return Call(steps, undo)

    def _renewal(self, ttl: float | timedelta | None) -> Call[LeaseHold]:
        identity = self._identity()
        hold = known.get(identity)
        seconds = self.ttl if ttl is None else check_ttl(ttl)
        operation = self._operation(identity, hold)

        def steps(wake: Wake) -> Steps[LeaseHold]:
            try:
                program = operation.renew(seconds, shorten=ttl is not None)
                yield from operation.steps(program, wake)
            except DistlockError as error:
                note_loss(error, identity, hold)
                raise
            return note(identity, operation, sender=PersistentLease)

        return Call(steps, operation.leave)

    def _return(
        self,
        hold: LeaseHold | None = None,
        judge: Callable[[DistlockError], DistlockError | None] = lambda error: error,
    ) -> Call[None]:
        """Return the call that releases the lease, or only this hold; `judge` chooses the error."""
        end_statements()
        identity = self._identity() if hold is None else (self.using, self._name, hold.owner)
        returned = hold or known.get(identity)
        operation = self._operation(identity, returned)

        def steps(wake: Wake) -> Steps[None]:
            try:
                yield from operation.steps(operation.release(only_known=hold is not None), wake)
            except DistlockError as error:
                note_loss(error, identity, returned)
                problem = judge(error)
                if problem is error:
                    raise
                if problem is not None:
                    raise problem from error
            else:
                if returned is not None:
                    forget(identity, returned)
                    returned.end()

        return Call(steps, operation.leave)

    def _identity(self) -> Identity:
        return self.using, self._name, self.owner or current().id

    def _operation(
        self, identity: Identity, hold: LeaseHold | None = None, timeout: Any = UNSET
    ) -> Operation:
        conf = configuration(self.using)
        return Operation(
            session_for(self.using),
            self._name,
            key=self.key,
            owner=identity[2],
            said=json.loads(current().describe(conf)),
            known=hold.term if hold else None,
            timeout=conf.connect_timeout if timeout is UNSET else timeout,
        )

    def _refuse_open_transaction(self, hold: LeaseHold | None) -> None:
        if hold is not None and has_blocks(hold):
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

    def _abandon(self, block: Block | None, failure: BaseException) -> None:
        """End a block whose end was interrupted, and release its lease without waiting."""
        if isinstance(failure, DistlockError):  # the release has ended so
            return
        if block is None or not block.end():
            return
        hold = block.hold
        if not hold.released:
            identity = self.using, self._name, hold.owner
            operation = self._operation(identity, hold)
            in_background(operation.session, operation.release(only_known=True))
            forget(identity, hold)
            hold.end()

    def _ending(self, block: Block | None, error: BaseException | None) -> Call[None] | None:
        """Return the call that ends a block, or None if another block still needs the lease."""
        if block is None:
            raise NotOwner(
                f"No block with the lease {self.key!r} began here: a block ends in the thread or "
                "task that began it, and not in a forked child."
            )
        hold, last = block.hold, block.end()
        if not last or hold.released:
            return None
        proven = hold.valid_for() > 0

        def judge(problem: DistlockError) -> DistlockError | None:
            if isinstance(problem, LockLost):  # the exception of the body takes precedence
                return problem if error is None else None
            if error is None and not proven:
                return LockLost(
                    f"Nobody knows whether the lease {self.key!r} was held to the end: its time "
                    f"was up, and {problem}",
                    hold=hold,
                )
            logger.warning(
                "The lease %r could not be released. It ends by itself at %s: %s",
                self.key,
                hold.expires,
                problem,
            )
            return None

        return self._return(hold, judge)


def zk_lease(
    key: str,
    ttl: float | timedelta,
    *,
    owner: str | None = None,
    timeout: float | timedelta | None = UNSET,
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
    key = prefixed(templates.literal_key(key), using)
    lease = PersistentLease(key, ttl, owner=owner, timeout=timeout, using=using)
    lease.has_prefix = True
    return lease


#: The number of requests under way at a time.
SWEPT_AT_A_TIME = 100


class Swept(NamedTuple):
    """The leases that were removed, those that run on, and nodes without the data of a lease."""

    removed: int
    live: int
    unreadable: list[str]


def sweep(using: str = "default") -> Swept:
    """Remove the leases that have ended, by the server's clock, and that nobody has taken over.

    Exclusion does not depend on it: it keeps the tree from filling up with leases of keys that
    nobody uses again. You may repeat it, and run it in several processes at a time.

    :param using: the alias in ``DISTLOCK``
    :raises LockUnavailable: the lock server did not answer in time, or refused;
        leases removed before that stay removed
    """
    session = session_for(using)
    parent = parent_of_leases(session)

    def answers(*requests: Request) -> list[Any]:
        """Ask at once; None stands for a node that is gone, or changed since the read."""
        return session.run(each(requests, NoNode, BadVersion), key="@leases")

    (names,) = answers(partial(session.children, parent))
    remaining = iter(names or ())
    removed, live, unreadable = 0, 0, list[str]()
    while paths := [f"{parent}/{name}" for name in islice(remaining, SWEPT_AT_A_TIME)]:
        reads = [partial(session.read, path) for path in paths]
        clock, *nodes = answers(partial(session.ask_time, parent), *reads)
        if clock is None:  # the parent has gone, and so have its children
            break
        found = {path: Term.read(*node) for path, node in zip(paths, nodes, strict=True) if node}
        unreadable += [path for path, term in found.items() if term is None]
        terms = {path: term for path, term in found.items() if term is not None}
        ended = {path: term for path, term in terms.items() if session.lease_clock.ended(term)}
        live += len(terms) - len(ended)
        removals = [partial(remove, session, path, term) for path, term in ended.items()]
        removed += sum(done is not None for done in answers(*removals))
    return Swept(removed, live, unreadable)
