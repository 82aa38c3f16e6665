"""The reentrant mutex and its hold: a port of Curator's ``InterProcessMutex``.

A `Mutex` object keeps no state of a call, so one object may serve any number of threads and tasks,
and two objects on one key are one lock. The `owner` keeps its holds. `queue` decides whose turn it
is.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Any, Final, Literal

from django.db import Error

from distlock import process
from distlock.conf import UNSET, configuration, prefixed, seconds, wait_limit
from distlock.contenders.batch import BatchMember
from distlock.contenders.contender import QueuedContender
from distlock.contenders.cool_down import CoolDown
from distlock.contenders.waiting import Attempt
from distlock.engine.calls import Call
from distlock.exceptions import DeadlockDetected, LockBusy, LockLost, NotOwner
from distlock.inspection.tree import participant
from distlock.keys import templates
from distlock.logs.loggers import logger
from distlock.owner.hold import TOO_LATE, Held, Hold, lost
from distlock.owner.owner import Owner, current
from distlock.queue.policies import COOLING, MUTEX, UNFAIR
from distlock.session.registry import session_for
from distlock.signals import announce, lock_contended
from distlock.transactions import keep_until_end, refuse_open_transaction

from .deadlocks import detector_for
from .lock import BlockEnd, Busy, KeyLock, OnUnavailable, Options
from .old_lock import OldLock
from .revocation import listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.contenders.waiting import InLine
    from distlock.engine.calls import Steps, Wake
    from distlock.keys.znodes import Participant


#: The suffixes that separate mutex, write and read holds of one key.
IDENTITIES: Final = ("", "/1-write", "/2-read")


class Mutex(KeyLock):
    """A fair, reentrant lock over all processes that share the ZooKeeper ensemble.

    `zk_lock` makes it. As a context manager it yields a `Hold`. Threads may share it.
    Source: Curator's ``InterProcessMutex``, the interface of :class:`threading.RLock`.
    """

    def __repr__(self) -> str:
        return f"zk_lock({self.key!r}, using={self.using!r})"

    # --- acquire and release ----------------------------------------------------------------------

    def release(self) -> None:
        """Release the lock; it takes as many releases as acquires.

        The delete is sent, and repeated until it is done. This does not wait for it.

        :raises NotOwner: this thread or task does not hold the lock
        :raises LockLost: it did, but the lock was lost meanwhile
        """
        self._release(current(look=False))

    def _release(self, owner: Owner, *, clean: bool = False) -> None:
        held = owner.held.get(self._id) or self._held_by(owner)  # which raises
        if held.count > 1:
            held.count -= 1
            return
        if process.noticed_pid != getpid():
            self._held_by(current())  # raises: a forked child has nothing of its parent's
        error = owner.let_go(self._id, held, clean=clean)
        if held.grant.lost:
            raise lost(held.hold, TOO_LATE)
        if error is not None:
            raise error

    @property
    def held(self) -> bool:
        """Whether the calling thread or task holds this lock; never uses the network."""
        return self._id in current().held

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        undone: list[object] = []
        depth = held = left = None
        try:
            owner = current(look=False)
            if owner.bypassed and self._end_bypassed(owner):
                return
            depth, held = owner.depth(self._id) - 1, owner.held.get(self._id)
            try:
                if self.options.database is not None:
                    self._held_by(owner).end_transaction(error)
            finally:
                self._leave(owner, error, undone)
                left = True
        except BaseException as failure:
            # After a refused COMMIT or savepoint, the transaction goes on, or has been rolled back.
            if not (left and isinstance(failure, Error)):
                owner = current()
                if self._end_bypassed(owner):
                    raise
                held = held or owner.held.get(self._id)
                depth = owner.depth(self._id) - 1 if depth is None else depth
                self._undo_end(owner, depth, held, undone)
            raise

    # --- looking ---------------------------------------------------------------------------------

    def locked(self) -> bool:
        """Whether anybody holds or awaits the lock. Asks the server."""
        return bool(self._participants(first=1))

    def holder(self) -> Participant | None:
        """Return the first in the queue. Asks the server."""
        return next(iter(self._participants(first=1)), None)

    def participants(self) -> list[Participant]:
        """Return all participants in the queue, the holder first. Asks the server.

        Nodes that vanish between the list and the read are missing.

        :raises LockUnavailable: the lock server did not answer in time
        """
        return self._participants()

    # --- together with others --------------------------------------------------------------------

    def block_end(self) -> BlockEnd:
        """Return the end of a block.

        :meta private:
        """
        owner = current()
        depth, held = owner.depth(self._id) - 1, owner.held.get(self._id)
        if self.options.transaction is None:
            return BlockEnd(self.release, partial(owner.back_to, depth, self._id))

        undone: list[object] = []
        left: list[bool] = []

        def leave() -> None:
            self._leave(owner, None, undone)
            left.append(True)

        def undo() -> None:
            if not left:  # it was interrupted
                self._undo_end(owner, depth, held, undone)

        return BlockEnd(leave, undo)

    # --- how it works ----------------------------------------------------------------------------

    @property
    def _recipe(self) -> type:
        return Mutex

    def _call(
        self,
        owner: Owner,
        blocking: bool,
        timeout: Any,
        entered: Callable[[Hold], object] | None = None,
        *,
        quiet: bool = False,
    ) -> Call[Hold | None]:
        conf = configuration(self.using)
        # The other kinds are not what the site had; and an owner that re-enters has the old lock.
        if conf.beside is None or type(self) is not Mutex or owner.depth(self._id):
            return self._own_call(owner, blocking, timeout, entered, quiet=quiet)
        limit = self._wait_limit(blocking, timeout)
        old = OldLock(conf, self.key)
        own: Call[Hold | None] | None = None

        def steps(wake: Wake) -> Steps[Hold | None]:
            nonlocal own
            try:
                rest = yield from old.take(limit)
            except LockBusy as busy:
                announce(lock_contended, Mutex, self, waited=busy.waited)
                if entered is None or quiet:
                    return None
                raise
            own = self._own_call(owner, True, rest, entered, quiet=quiet)
            hold = yield from own.steps(wake)
            if hold is None:
                undo()
            else:
                owner.held[self._id].release_old = old.release
            return hold

        def undo() -> None:
            if own is not None:
                own.undo()
            if error := old.release():
                raise error

        return Call(steps, undo)

    def _own_call(
        self,
        owner: Owner,
        blocking: bool,
        timeout: Any,
        entered: Callable[[Hold], object] | None,
        *,
        quiet: bool,
    ) -> Call[Hold | None]:
        depth = owner.depth(self._id)
        attempt: Attempt[InLine] | None = None
        cool_down: CoolDown | None = None

        def steps(wake: Wake) -> Steps[Hold | None]:
            nonlocal attempt, cool_down
            if self._id in owner.held:
                hold = self._again(owner, timeout, entered)
                if hold is not None:
                    return hold
            keeper = None if entered is None else self.options.transaction  # a block ends with it
            attempt = self._attempt(owner, blocking, timeout, keeper)
            attempt.begin(wake).join()
            while (patience := attempt.patience()) is not None:
                yield patience
            contender = attempt.contender
            if self.options.hold_at_least is not None and contender.granted:
                cool_down = CoolDown(contender, self.options.hold_at_least)
                if (yield from attempt.ask(cool_down.create)) is None:
                    contender.error = attempt.session.unavailable(self.key)
                    contender.leave()
            hold = self._conclude(owner, attempt)
            if entered is not None and not (quiet and hold is None):
                if hold is None:
                    head = attempt.contender.head
                    read = partial(attempt.session.read, head)
                    holder = participant(head, (yield from attempt.ask(read)))
                    by = f". It is held by {holder}" if holder else ""
                    what = f"The lock {self.key!r}"
                    raise attempt.busy(what, by, holder, template=self.template)
                entered(hold)
            return hold

        def undo() -> None:
            if attempt is not None:
                attempt.give_up()
            if cool_down is not None:
                cool_down.undo()
            owner.back_to(depth, self._id)

        return Call(steps, undo)

    def _again(
        self, owner: Owner, timeout: Any, entered: Callable[[Hold], object] | None = None
    ) -> Hold | None:
        held = owner.held.get(self._id)
        if held is None:
            return None
        if held.grant.left:  # its release was interrupted
            owner.let_go(self._id, held)
            return None
        if timeout is not UNSET:
            seconds(timeout)  # refuses an invalid timeout, though nothing waits
        if held.grant.lost:
            raise lost(held.hold)
        depth = held.count
        try:
            held.count = depth + 1
            if entered is not None:
                entered(held.hold)
            return held.hold  # noqa: TRY300 - an exception that lands here is undone, too
        except BaseException:
            owner.back_to(depth, self._id)
            raise

    def _attempt(
        self, owner: Owner, blocking: bool, timeout: Any, keeper: str | None = None
    ) -> Attempt[InLine]:
        """Return the wait of one call.

        :param keeper: the alias of the database whose open transaction will keep the lock
        """
        options = self.options
        limit = wait_limit(blocking, timeout, options.timeout, options.using)
        conf = configuration(self.using)
        other = self._other_kind(owner) if owner.held else None
        if other is not None:
            self._join_other_kind(other)
        elif conf.in_transaction == "raise":
            refuse_open_transaction(self.key, keeper)
        session = session_for(self.using)
        contender_for = partial(
            self._contender_for(owner),
            session,
            self._path(session),
            key=self.key,
            data=owner.describe(conf, self.template),
            on_revoke=None if options.on_revoke is None else listener(options.on_revoke, self),
        )
        detector = detector_for(owner, limit, conf.deadlock_after) if owner.held else None
        return Attempt(
            session,
            self.key,
            limit,
            contender_for,
            detector=detector,
            max_waiters=options.max_waiters,
            sender=Mutex,
            about=self,
        )

    def _other_kind(self, owner: Owner) -> Held | None:
        """Return the hold of `owner` on this key by a lock of another kind."""
        for kind in IDENTITIES:  # not over all its holds: they may be thousands
            held = owner.held.get((self.using, self._name + kind))
            if held is not None:
                return held
        return None

    def _join_other_kind(self, held: Held) -> None:
        """Raise if the caller would deadlock with itself.

        :raises LockLost: the hold of the other kind is lost
        """
        held.hold.check()
        raise DeadlockDetected(
            f"{self!r} would wait for ever: the caller holds zk_lock() or zk_rwlock() of the same "
            "key, and one key has one queue. Give each lock a key of its own, or use the write "
            "lock of zk_rwlock() for both.",
            key=self.key,
            using=self.using,
        )

    def _contender_for(self, owner: Owner) -> Callable[..., InLine]:
        """Return the function that makes a contender in this lock's queue for `owner`."""
        if self.options.hold_at_least is not None:
            return partial(QueuedContender, policy=COOLING)
        if self.options.handoff:
            return partial(BatchMember, handoff=self.options.handoff)
        return partial(QueuedContender, policy=MUTEX if self.options.fair else UNFAIR)

    def _conclude(self, owner: Owner, attempt: Attempt[InLine]) -> Hold | None:
        """Return the hold, which `owner` has now, or None if the lock is busy."""
        if attempt.outcome() is None:
            return None
        keep = partial(owner.held.__setitem__, self._id)
        return self._new_hold(Mutex, attempt.contender, attempt.started, keep)

    def _held_by(self, owner: Owner) -> Held:
        held = owner.held.get(self._id)
        if held is None:
            raise NotOwner(
                f"{self.key!r} is not held here. The thread or task that acquired a lock releases "
                "it, once for each acquire. A forked child cannot."
            )
        return held

    def _entered(self, hold: Hold) -> None:
        if self.options.database is not None:
            self._held_by(current()).begin_transaction(self.options.database)

    def _leave(self, owner: Owner, error: BaseException | None, undone: list[object]) -> None:
        """Release at the end of a block, or let its transaction keep the lock.

        :param undone: has something once the end was interrupted, and somebody else releases
        """
        database = self.options.transaction
        held = None if database is None else owner.held.get(self._id)
        if held is None:
            self._release_quietly(owner, error)
            return
        if error is None:
            held.hold.check()

        def release(clean: bool) -> None:
            if not undone and owner.held.get(self._id) is held and owner.process is process.this:
                if held.count > 1:
                    undone.append(held)  # first, or a second call would release another block's
                held.kept -= 1
                self._release_quietly(owner, sys.exc_info()[1], clean=clean)
                undone.append(held)

        if keep_until_end(str(database), held.hold.check, release):
            held.kept += 1
        else:
            self._release_quietly(owner, error)

    def _undo_end(self, owner: Owner, depth: int, held: Held | None, undone: list[object]) -> None:
        """Undo the acquire of a block whose end was interrupted, and stop the COMMIT around it."""
        undone.append(held)
        owner.back_to(depth, self._id)
        if held is not None and self.options.transaction is not None:
            keep_until_end(self.options.transaction, held.hold.check, lambda _clean: None)

    def _release_quietly(
        self, owner: Owner, error: BaseException | None, *, clean: bool = False
    ) -> None:
        """Release at the end of a block, whose own exception takes precedence."""
        try:
            self._release(owner, clean=clean)
        except (LockLost, NotOwner) as refusal:
            if error is None:
                raise
            if isinstance(refusal, NotOwner):  # the signal reports a lost lock
                logger.exception("A block of %r ended and released nothing.", self)


def zk_lock(
    key: str,
    *,
    timeout: float | timedelta | None = UNSET,
    using: str = "default",
    fair: bool = True,
    handoff: int = 0,
    atomic: bool | str = False,
    until: Literal["block", "commit"] = "block",
    on_revoke: Callable[[Mutex], object] | None = None,
    max_hold: float | timedelta | None = None,
    hold_at_least: float | timedelta | None = None,
    max_waiters: int | None = None,
    cancel_on_loss: bool = False,
    busy: Busy | None = None,
    on_unavailable: OnUnavailable = "raise",
    **values: Any,
) -> Mutex:
    """Return the lock named `key`.

    ::

        with zk_lock(f"stock:{sku}", timeout=2) as hold:
            ...

    :param key: the name of the lock: ``"stock:42"``; or a template such as ``"stock:<sku>"``, as in
        `zk_locked`, under which metrics and the admin count it
    :param timeout: seconds to wait (number or timedelta), 0 to try once, None for ever; by default
        the setting ``TIMEOUT`` (5 s)
    :param using: the alias in ``DISTLOCK``
    :param fair: False does not queue: each release wakes all waiters, and the first to ask gets the
        lock
    :param handoff: the number of waiters of this process that may have the lock in turns before
        the next process, 0 for strictly first come, first served; these holds share a fencing token
    :param atomic: True opens a database transaction inside the lock, a text opens it on that
        database; the transaction commits before the lock is released. Inside an open transaction on
        that database it makes a savepoint, and keeps the lock until the outer one ends
    :param until: "commit" also takes the lock inside an open transaction on the database "default",
        and keeps it until that, or a savepoint around the block, has ended: by COMMIT, which a lost
        lock stops, or by ROLLBACK. Without one, the block ends it
    :param on_revoke: called with the lock, in a thread of its own, when somebody asks this holder
        or waiter to leave (`revoke`); you decide what to do
    :param max_hold: seconds (number or timedelta) after which a hold is given up: it counts as
        lost, and the next waiter gets the lock, whatever the holder is doing. The time runs from
        the first acquire. None (default) is no limit
    :param hold_at_least: seconds (number or timedelta) for which the key stays taken from the first
        acquire on, by the server's clock, also if the block ends earlier or the process dies; the
        same owner has to wait for that, too. None (default) is no such time
    :param max_waiters: the number of waiters, in all processes, at which a further one finds the
        lock busy at once. 0 waits behind nobody, as ``timeout=0`` does, but up to `timeout` for a
        lock server that is away. With `handoff`, another process counts as one waiter. None
        (default) is no limit
    :param cancel_on_loss: True cancels the body of ``async with`` when the lock is lost, and raises
        `LockLost` out of the block. For async code only
    :param busy: raised in place of `LockBusy` where a block does not get the lock: an exception
        class, made with the message, or a callable that returns an exception for the `LockBusy`
    :param on_unavailable: "proceed" lets a block go on **without the lock** where the lock server
        is away (`LockUnavailable`), and sends `lock_bypassed`; others may be in it at the same
        time. Its hold has `Hold.without_lock`, and raises where a token is wanted
    :param values: the values of the template's placeholders: ``sku=42``
    :raises LockInTransaction: in the block, a transaction is open that does not keep the lock, or
        whose isolation level shows it rows from before the lock
    :raises LockKeyError: `key` is empty or no valid text, or a placeholder has no value
    :raises TypeError: `values` has a name that the template lacks
    :raises ValueError: `handoff` is negative, or together with ``fair=False`` or `on_revoke`;
        `max_hold` or `hold_at_least` is not above 0; `max_waiters` is negative,
        or together with ``fair=False``
    """
    key, template = templates.filled(key, values)
    options = Options(
        timeout=timeout,
        using=using,
        fair=fair,
        handoff=handoff,
        atomic=atomic,
        until=until,
        on_revoke=on_revoke,
        max_hold=max_hold,
        hold_at_least=hold_at_least,
        max_waiters=max_waiters,
        cancel_on_loss=cancel_on_loss,
        busy=busy,
        on_unavailable=on_unavailable,
        template=template,
    )
    return Mutex(prefixed(key, using), options)
