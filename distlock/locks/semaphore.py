"""Limits how many may hold at a time: ports of Curator's semaphore, and of its mutex.

``InterProcessSemaphoreMutex`` is an ``InterProcessSemaphoreV2`` with one permit, on the same wire.
A permit has no owner. It belongs to the process, and any of its threads or tasks may release it. So
nothing here is reentrant, two objects on one key are one semaphore, and `held_permits` keeps the
permits of this process by key. `contenders.semaphore` waits for them.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from distlock.conf import UNSET, configuration, prefixed
from distlock.contenders.semaphore import SemaphoreContender
from distlock.contenders.waiting import Attempt
from distlock.engine.calls import Call
from distlock.engine.errors import NodeExists, NoNode, NotEmpty
from distlock.exceptions import LimitReached, LockLost, NotOwner
from distlock.keys import templates, znodes
from distlock.owner.hold import TOO_LATE, Held, Hold, lost
from distlock.owner.owner import current
from distlock.queue.semaphore import KEPT, Limit, setting, whole
from distlock.session.programs import Program, each
from distlock.session.registry import session_for
from distlock.transactions import end_statements, refuse_open_transaction

from .held_permits import HeldPermits, claim, count, forget, keep, on
from .lock import BlockEnd, Busy, KeyLock, OnUnavailable, Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import Requests
    from distlock.keys.znodes import Participant
    from distlock.owner.owner import Owner
    from distlock.session.session import Session

    Awaited: TypeAlias = Attempt[SemaphoreContender]


class Permits(KeyLock):
    """Acquires and releases permits, for the semaphore and its mutex."""

    #: How many permits a block takes.
    wanted = 1

    def __init__(self, key: str, limit: Limit, options: Options) -> None:
        super().__init__(key, options)
        self._id = (self.using, f"{self._name}/semaphore")
        self._limit = limit

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        returned: list[Held] = []
        try:
            owner = current()
            if not (owner.bypassed and self._end_bypassed(owner)):
                self._give_back(self._permits(owner), self.wanted, returned)
        except (LockLost, NotOwner):
            if error is None:  # the body's own takes precedence
                raise
        except BaseException:  # a soft time limit landed here
            owner = current()
            if not (returned or self._end_bypassed(owner)):
                self._give_back(self._permits(owner), self.wanted, returned)
            raise

    # --- looking ---------------------------------------------------------------------------------

    def locked(self) -> bool:
        """Whether all permits are in use. Asks the server.

        :raises LockUnavailable: the lock server did not answer in time
        """
        session = session_for(self.using)
        path = f"{self._path(session)}/leases"
        try:
            data, stat = session.call(session.read, path, key=self.key)
        except NoNode:
            return False
        self._limit.read(data)
        return bool(stat.numChildren >= self._limit.now)

    def participants(self) -> list[Participant]:
        """Return the holders, once for each permit, the oldest first. Asks the server.

        The first waiter is among them, with the permits for which it waits.

        :raises LockUnavailable: the lock server did not answer in time
        """
        return self._participants("/leases", order=znodes.leases)

    def waiters(self) -> list[Participant]:
        """Return the waiters in their order. Asks the server.

        :raises LockUnavailable: the lock server did not answer in time
        """
        return self._participants("/locks")

    # --- together with others --------------------------------------------------------------------

    @property
    def rank(self) -> tuple[int, str, str, str]:
        return self._limit.own, *super().rank[1:]

    def block_end(self) -> BlockEnd:
        """Return the end of a block.

        :meta private:
        """
        permits = self._permits(current())
        left = max(len(on(permits)) - self.wanted, 0)

        def undo() -> None:
            self._undo(permits, on(permits)[left:])

        return BlockEnd(partial(self._give_back, permits, self.wanted, []), undo)

    # --- how it works ----------------------------------------------------------------------------

    def _permits(self, owner: Owner | None = None) -> HeldPermits:
        return self.using, self._name, owner

    def _call(
        self,
        owner: Owner,
        blocking: bool,
        timeout: Any,
        entered: Callable[[Hold], object] | None = None,
        *,
        quiet: bool = False,
        wanted: int = 0,
    ) -> Call[Hold | None]:
        permits = self._permits(None if entered is None else owner)
        attempt = self._attempt(owner, wanted or self.wanted, blocking, timeout)
        taken: list[Held] = []

        def conclude(attempt: Awaited) -> Hold | None:
            hold = self._conclude(permits, taken, attempt)
            if entered is not None and not (quiet and hold is None):
                if hold is None:
                    raise attempt.busy(
                        f"The limit of {self._limit.now} for {self.key!r}",
                        ": all permits are taken",
                        kind=LimitReached,
                        template=self.template,
                    )
                entered(hold)
            return hold

        return Call(partial(attempt.steps, conclude), partial(self._undo, permits, taken, attempt))

    def _undo(
        self, permits: HeldPermits, taken: list[Held], attempt: Awaited | None = None
    ) -> None:
        if attempt is not None:
            attempt.give_up()
        for held in taken:
            held.grant.leave()
            if forget(held):
                self._end(held)

    def _attempt(self, owner: Owner, wanted: int, blocking: bool, timeout: Any) -> Awaited:
        conf = configuration(self.using)
        limit = self._wait_limit(blocking, timeout)
        session = session_for(self.using)
        contender_for = partial(
            SemaphoreContender,
            session,
            self._path(session),
            limit=self._limit,
            wanted=wanted,
            key=self.key,
            data=owner.describe(conf, self.template),
        )
        return Attempt(
            session,
            self.key,
            limit,
            contender_for,
            max_waiters=self.options.max_waiters,
            sender=type(self),
            about=self,
        )

    def _conclude(self, permits: HeldPermits, taken: list[Held], attempt: Awaited) -> Hold | None:
        if attempt.outcome() is None:
            return None

        def take(held: Held) -> None:
            taken.append(held)
            keep(permits, held)

        for permit in attempt.contender.permits:
            self._new_hold(type(self), permit, attempt.started, take)
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
                forget(held)
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


class Semaphore(Permits):
    """A number of permits over all processes that share the ZooKeeper ensemble.

    `zk_semaphore` makes it. As a context manager it takes one permit, yields its `Hold`, and
    releases that one. Threads and tasks may share it. It has no owner, and is not reentrant.
    Source: Curator's ``InterProcessSemaphoreV2``, the interface of :class:`threading.Semaphore`.
    """

    def __init__(self, key: str, limit: int, options: Options, *, wanted: int = 1) -> None:
        super().__init__(key, Limit(key, limit), options)
        self.wanted = wanted

    def __repr__(self) -> str:
        return f"zk_semaphore({self.key!r}, {self.limit}, using={self.using!r})"

    def acquire(
        self, blocking: bool = True, timeout: float | timedelta | None = UNSET, *, leases: int = 1
    ) -> bool:
        """Take a permit; return False if all are in use.

        :param blocking: False tries once
        :param timeout: seconds (number or timedelta) to wait, 0 to try once, None for ever; by
            default the semaphore's own, and then the setting ``TIMEOUT`` (5 s)
        :param leases: the number of permits to take, all or none. A caller that wants several waits
            for them at the head of the queue, and later callers wait behind it.
        :raises ValueError: more permits than the limit, which may be lowered during the wait
        :raises LockUnavailable: the lock server did not answer in time, or refused
        """
        return self._taking(blocking, timeout, leases).run() is not None

    def release(self, leases: int = 1) -> None:
        """Release permits that any thread of this process has acquired.

        The deletes are sent, and repeated until they are done. This does not wait for them.

        :param leases: the number of permits
        :raises NotOwner: this process has fewer, and keeps them
        :raises LockLost: one of them was lost meanwhile; all are released
        """
        self._give_back(self._permits(), whole(leases, "leases"), [])

    async def aacquire(
        self, blocking: bool = True, timeout: float | timedelta | None = UNSET, *, leases: int = 1
    ) -> bool:
        """Take permits as `acquire` does, without a thread for the wait."""
        return await self._taking(blocking, timeout, leases).arun() is not None

    async def arelease(self, leases: int = 1) -> None:
        """Release permits as `release` does."""
        self.release(leases)

    @property
    def held(self) -> int:
        """The number of permits of this process; never uses the network."""
        return count(self.using, self._name)

    @property
    def limit(self) -> int:
        """The number of permits, as far as this process knows; assigning changes it for all.

        Assigning writes the new limit where all peers read it, and wakes waiters. Nobody loses a
        permit when the limit falls. The assigned limit overrides the limit in any process's code
        until ``del semaphore.limit``. Curator's clients do not read it.

        :raises LockUnavailable: the lock server did not answer in time, or refused; assign it again
        """
        return self._limit.now

    @limit.setter
    def limit(self, limit: int) -> None:
        session = session_for(self.using)
        set_limit(session, self._path(session), limit, key=self.key)
        self._limit.told = limit

    @limit.deleter
    def limit(self) -> None:
        session = session_for(self.using)
        set_limit(session, self._path(session), None, key=self.key)
        self._limit.told = None

    def _taking(self, blocking: bool, timeout: Any, leases: int) -> Call[Hold | None]:
        return self._without_block(blocking, timeout, wanted=whole(leases, "leases"))


def set_limit(session: Session, path: str, limit: int | None, *, key: str) -> None:
    """Set the limit of the semaphore under `path` for all, None for that of their code.

    :raises LockUnavailable: the lock server did not answer in time, or refused
    """
    leases, kept = f"{path}/leases", f"{path}/{KEPT}"
    data = b"" if limit is None else setting(whole(limit, "limit"))

    def steps(make: Requests) -> list[Any]:
        keep = make.deletion(kept) if limit is None else make.writing(kept, data, -1)
        return [keep, make.writing(leases, data, -1)]

    def program() -> Program[None]:
        missing = (
            partial(session.create_containers, leases, data=data),
            partial(session.create_persistent, kept, data),
        )
        while True:
            try:
                yield partial(session.transact, steps)
            except NoNode:
                yield from each(missing, NodeExists, NoNode)
            else:
                break
        if limit is None:  # the server removes no container that never had a child
            yield from each([partial(session.remove, leases, -1)], NoNode, NotEmpty)

    session.run(program(), key=key)


def zk_semaphore(
    key: str,
    limit: int,
    *,
    timeout: float | timedelta | None = UNSET,
    using: str = "default",
    max_hold: float | timedelta | None = None,
    max_waiters: int | None = None,
    cancel_on_loss: bool = False,
    busy: Busy | None = None,
    on_unavailable: OnUnavailable = "raise",
    **values: Any,
) -> Semaphore:
    """Return the semaphore named `key`, with `limit` permits.

    ::

        with zk_semaphore("mail-provider", 5, timeout=2) as hold:
            ...

    :param key: the name of the semaphore: ``"mail-provider"``, or a template, as in `zk_lock`
    :param limit: the number of permits, the same for all users of the key
    :param timeout: seconds to wait, as in `zk_lock`
    :param using: the alias in ``DISTLOCK``
    :param max_hold: seconds after which each permit is given up, as in `zk_lock`
    :param max_waiters: the number of waiters at which a further one does not wait for permits that
        are in use, as in `zk_lock`
    :param cancel_on_loss: True cancels the body of ``async with`` at a loss, as in `zk_lock`
    :param busy: raised in place of `LockBusy`, as in `zk_lock`
    :param on_unavailable: "proceed" goes on without the lock, as in `zk_lock`
    :param values: the values of the template's placeholders, as in `zk_lock`
    :raises LockKeyError: `key` is empty or no valid text, or a placeholder has no value
    :raises ValueError: `limit` is less than one, `max_hold` is not above 0, or `max_waiters` is
        negative
    """
    key, template = templates.filled(key, values)
    options = Options(
        timeout=timeout,
        using=using,
        max_hold=max_hold,
        max_waiters=max_waiters,
        cancel_on_loss=cancel_on_loss,
        busy=busy,
        on_unavailable=on_unavailable,
        template=template,
    )
    return Semaphore(prefixed(key, using), limit, options)


class SemaphoreMutex(Permits):
    """A lock that any thread or task of the process may release; not reentrant.

    `zk_semaphore_mutex` makes it. As a context manager it yields a `Hold`.
    Source: Curator's ``InterProcessSemaphoreMutex``, the interface of :class:`threading.Lock`.
    """

    def __init__(self, key: str, options: Options) -> None:
        super().__init__(key, Limit(key, 1, fixed=True), options)

    def __repr__(self) -> str:
        return f"zk_semaphore_mutex({self.key!r}, using={self.using!r})"

    def release(self) -> None:
        """Release the lock, whichever thread of this process acquired it.

        The delete is sent, and repeated until it is done. This does not wait for it.

        :raises NotOwner: this process does not hold the lock
        :raises LockLost: it did, but the lock was lost meanwhile
        """
        self._give_back(self._permits(), 1, [])

    @property
    def held(self) -> bool:
        """Whether this process holds the lock; never uses the network."""
        return count(self.using, self._name) > 0

    def holder(self) -> Participant | None:
        """Return the holder. Asks the server."""
        return next(iter(self.participants()), None)

    def _attempt(self, *args: Any) -> Awaited:
        if configuration(self.using).in_transaction == "raise":
            refuse_open_transaction(self.key)
        return super()._attempt(*args)


def zk_semaphore_mutex(
    key: str,
    *,
    timeout: float | timedelta | None = UNSET,
    using: str = "default",
    max_hold: float | timedelta | None = None,
    cancel_on_loss: bool = False,
) -> SemaphoreMutex:
    """Return a lock named `key` that is not reentrant, and that any thread may release.

    It excludes a semaphore of the same key, but not a `zk_lock` of that key.

    ::

        lock = zk_semaphore_mutex("import")
        if lock.acquire(timeout=0):
            Thread(target=work_and_then, args=[lock.release]).start()

    :param key: the name of the lock: ``"import"``
    :param timeout: seconds to wait, as in `zk_lock`
    :param using: the alias in ``DISTLOCK``
    :param max_hold: seconds (number or timedelta) after which a hold is given up, as in `zk_lock`
    :param cancel_on_loss: True cancels the body of ``async with`` at a loss, as in `zk_lock`
    :raises LockKeyError: `key` is empty or no valid text
    :raises ValueError: `max_hold` is not above 0
    """
    options = Options(
        timeout=timeout, using=using, max_hold=max_hold, cancel_on_loss=cancel_on_loss
    )
    return SemaphoreMutex(prefixed(templates.literal_key(key), using), options)
