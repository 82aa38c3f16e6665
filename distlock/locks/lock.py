"""Defines the options of a lock, and the sync and async ways into it, which all recipes share."""

from __future__ import annotations

import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar

from django.conf import settings
from django.db import Error

from distlock.conf import UNSET, positive_seconds, refuse_other_prefix, seconds, wait_limit
from distlock.contenders.batch import check_handoff
from distlock.engine.calls import Call
from distlock.exceptions import LockBusy, LockUnavailable
from distlock.inspection.tree import participants
from distlock.keys import templates
from distlock.keys.znodes import Participant
from distlock.owner.call_stack import running_loop
from distlock.owner.hold import Held, Hold, NoHold
from distlock.owner.owner import Identity, Owner, current
from distlock.session.registry import session_for
from distlock.session.session import Session
from distlock.signals import announce, lock_acquired, lock_bypassed

from . import cancellation
from .revocation import check_listener

_H = TypeVar("_H")

#: An exception class, or a function that returns an exception for the `LockBusy`.
Busy: TypeAlias = Callable[[Any], BaseException]
#: The answer of a block where the lock server is away.
OnUnavailable: TypeAlias = Literal["raise", "proceed"]


@dataclass(slots=True, kw_only=True)  # frozen, it would take three times as long to make
class Options:
    """The options of a lock, which `zk_lock` explains. No recipe has all of them, none changes any.

    :ivar template: that of a decorator, or of a block with placeholders: for metrics, for example,
        which show no keys
    :ivar database: the alias for a transaction inside the lock, None for no transaction
    :ivar transaction: the alias of the database whose open transaction keeps the lock until its end
    :ivar block_only: whether the lock is taken by a block, and not by `acquire`
    """

    timeout: Any = UNSET
    using: str = "default"
    fair: bool = True
    handoff: int = 0
    atomic: bool | str = False
    on_revoke: Callable[[Any], object] | None = None
    max_hold: Any = None
    hold_at_least: Any = None
    max_waiters: int | None = None
    cancel_on_loss: bool = False
    busy: Busy | None = None
    until: Literal["block", "commit"] = "block"
    on_unavailable: OnUnavailable = "raise"
    template: str = ""
    database: str | None = field(init=False)
    transaction: str | None = field(init=False)
    block_only: bool = field(init=False)

    def __post_init__(self) -> None:
        check_listener(self.on_revoke)
        if not (self.busy is None or callable(self.busy)):
            raise TypeError(f"busy= is an exception class or a callable, not {self.busy!r:.80}.")
        check_handoff(self.handoff, fair=self.fair, revocable=self.on_revoke is not None)
        if self.max_waiters is not None and (
            type(self.max_waiters) is not int or self.max_waiters < 0 or not self.fair
        ):
            raise ValueError(
                "max_waiters= is a number of waiters from 0 up, without fair=False, which does not "
                f"queue; not {self.max_waiters!r:.80}."
            )
        self.timeout = self.timeout if self.timeout is UNSET else seconds(self.timeout)
        self.max_hold = positive_seconds(self.max_hold, "max_hold")
        self.hold_at_least = positive_seconds(self.hold_at_least, "hold_at_least")
        if self.hold_at_least is not None and (self.handoff or not self.fair):
            raise ValueError("hold_at_least= is for a fair lock, without handoff= and fair=False.")
        if self.until not in ("block", "commit"):
            raise ValueError(f'until= is "block" or "commit", not {self.until!r:.80}.')
        self.database = "default" if self.atomic is True else self.atomic or None
        self.transaction = self.database or ("default" if self.until == "commit" else None)
        if self.on_unavailable not in ("raise", "proceed"):
            raise ValueError(
                f'on_unavailable= is "raise" or "proceed", not {self.on_unavailable!r:.80}.'
            )
        proceeds = self.on_unavailable == "proceed"
        if proceeds and self.transaction is not None:
            raise ValueError(
                'on_unavailable="proceed" goes on without the lock, and atomic= and until= keep it '
                "around a transaction: begin the transaction inside the block."
            )
        self.block_only = self.cancel_on_loss or proceeds or self.until == "commit"


class Lock(ABC, Generic[_H]):
    """A lock that is acquired by one `Call`, blocking or awaiting; a block yields its hold."""

    options: Options

    @abstractmethod
    def _call(
        self,
        owner: Owner,
        blocking: bool,
        timeout: Any,
        entered: Callable[[_H], object] | None = None,
        *,
        quiet: bool = False,
    ) -> Call[_H | None]:
        """Return the call that takes the lock for `owner`, and returns its hold, None if busy.

        :param entered: called with the hold when a block begins; a busy lock raises then
        :param quiet: whether a block begins without the lock where that is busy
        """

    def _again(
        self, owner: Owner, timeout: Any, entered: Callable[[_H], object] | None = None
    ) -> _H | None:
        """Enter a lock once more that `owner` holds; return None if there is nothing to enter.

        The call does so, too. This is for those who block: to make the call takes twice as long.
        """
        return None

    def _wait_limit(self, blocking: bool, timeout: Any) -> float | None:
        return wait_limit(blocking, timeout, self.options.timeout, self.options.using)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is neither true nor false. Take it: `with lock:`, or `if lock.acquire():`; "
            "`lock is not None` tells whether there is one."
        )

    def attempt(self, timeout: float | timedelta | None = UNSET) -> Attempted[_H]:
        """Return a block that yields the hold, or None where the lock is busy.

        ::

            with zk_lock("report").attempt(timeout=0) as hold:
                if hold is not None:
                    ...

        :param timeout: seconds to wait, as in `acquire`
        """
        return Attempted(self, timeout)

    def _without_block(self, blocking: bool, timeout: Any, **how: Any) -> Call[_H | None]:
        if self.options.block_only:
            self._refuse_without_block()
        return self._call(current(), blocking, timeout, **how)

    def _refuse_without_block(self) -> None:
        if self.options.cancel_on_loss:
            cancellation.refuse_without_block(self)
        commits = self.options.until == "commit"
        option = 'until="commit"' if commits else 'on_unavailable="proceed"'
        raise TypeError(f"{option} is for a block: write `with lock: …`, not `acquire()`.")

    def acquire(self, blocking: bool = True, timeout: float | timedelta | None = UNSET) -> bool:
        """Take the lock, or all of a multi-lock; return False if it is busy, and hold nothing.

        :param blocking: False tries once
        :param timeout: seconds (number or timedelta) to wait, 0 to try once, None for ever; by
            default the lock's own, and then the setting ``TIMEOUT`` (5 s)
        :raises LockUnavailable: the lock server did not answer in time, or refused
        :raises LockInTransaction: a first acquire within an open transaction
        :raises LockLost: this owner held the lock and has lost it; release it first. Or one of a
            multi-lock was lost before the last was granted
        :raises DeadlockDetected: the wait would never end
        """
        if self.options.block_only:
            self._refuse_without_block()
        who = current()
        # Not bool(…): a signal is handled when a call returns.
        return (self._again(who, timeout) or self._call(who, blocking, timeout).run()) is not None

    async def aacquire(
        self, blocking: bool = True, timeout: float | timedelta | None = UNSET
    ) -> bool:
        """Take the lock as `acquire` does, without a thread for the wait."""
        return await self._without_block(blocking, timeout).arun() is not None

    @abstractmethod
    def release(self) -> None:
        """Release the lock."""

    async def arelease(self) -> None:
        """Release the lock as `release` does."""
        self.release()

    def _entered(self, hold: _H) -> None:
        """Begin what a ``with`` block has besides the lock."""

    def _aentered(self, hold: Any) -> None:
        """Begin what an ``async with`` block has besides the lock."""
        if self.options.cancel_on_loss:
            cancellation.begin(self, hold)

    def __enter__(self) -> _H:
        if self.options.cancel_on_loss:
            cancellation.refuse_without_block(self)
        owner = current()
        try:
            return self._again(owner, UNSET, self._entered) or self.entry(owner).run()
        except LockBusy as busy:
            self._raise(busy)
        except LockUnavailable as error:
            return self._bypass(error, owner)

    def entry(
        self, owner: Owner, timeout: Any = UNSET, entered: Callable[[_H], object] | None = None
    ) -> Call[_H]:
        """Return the call that begins a block of `owner`, by default a ``with`` block.

        :meta private:
        """
        if entered is None and owner.thread is None:
            _warn_of_stopped_loop(self)
        entered = entered or self._entered
        return self._call(owner, True, timeout, entered)  # type: ignore[return-value]  # or raises

    def _raise(self, busy: LockBusy) -> NoReturn:
        """Raise what the user wants in place of a `LockBusy`."""
        if self.options.busy is None:
            raise busy
        error = self.options.busy(str(busy) if isinstance(self.options.busy, type) else busy)
        raise error from busy

    def _bypass(self, error: LockUnavailable, owner: Owner | None = None) -> _H:
        """Return what a block has that goes on without the lock, or raise `error`.

        :param owner: that of a block that `__exit__` ends
        """
        raise error

    @abstractmethod
    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None: ...

    @abstractmethod
    def _undo_of_block(self) -> Callable[[], object]:
        """Return what undoes the acquire of the block that has just begun, any number of times."""

    async def __aenter__(self) -> _H:
        self._refuse_atomic()
        owner = current()
        try:
            return await self.entry(owner, entered=self._aentered).arun()
        except LockBusy as busy:
            self._raise(busy)
        except LockUnavailable as error:
            return self._bypass(error, owner)

    def _refuse_atomic(self) -> None:
        if self.options.transaction is not None:
            raise TypeError(
                "atomic= and until= need a transaction of Django, which async code has not. "
                "Use the lock in a synchronous function and call that with sync_to_async."
            )

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        loss = cancellation.end(self, error) if self.options.cancel_on_loss else None
        self.__exit__(kind, error, traceback)
        if loss is not None:
            raise loss from error


def _warn_of_stopped_loop(lock: Lock[Any]) -> None:
    """Warn a developer whose block waits in a coroutine, unless Django was told to allow that."""
    if settings.DEBUG and running_loop() and not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        warnings.warn(
            f"`with {lock!r}` in a coroutine stops the event loop, and each other task, while it "
            "waits. Write `async with`.",
            RuntimeWarning,
            stacklevel=4,
        )


class Attempted(Generic[_H]):
    """A block of a lock that may be without it: `Lock.attempt` makes one for each block."""

    #: Undoes the acquire, any number of times, if an exception lands in the end of the block; None
    #: while the block has not taken the lock.
    _undo: Callable[[], object] | None = None

    def __init__(self, lock: Lock[_H], timeout: Any) -> None:
        self._lock = lock
        self._timeout = timeout

    def __enter__(self) -> _H | None:
        lock = self._lock
        if lock.options.cancel_on_loss:
            cancellation.refuse_without_block(lock)
        try:
            return self._call(lock._entered).run()  # noqa: SLF001 - the two belong together
        except LockUnavailable as error:
            return lock._bypass(error)  # noqa: SLF001

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if self._undo is not None:
                self._lock.__exit__(kind, error, traceback)
        except BaseException as failure:
            self._undo_after(failure)
            raise

    async def __aenter__(self) -> _H | None:
        lock = self._lock
        lock._refuse_atomic()  # noqa: SLF001
        try:
            return await self._call(lock._aentered).arun()  # noqa: SLF001
        except LockUnavailable as error:
            return lock._bypass(error)  # noqa: SLF001

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if self._undo is not None:
                await self._lock.__aexit__(kind, error, traceback)
        except BaseException as failure:
            self._undo_after(failure)
            raise

    def _undo_after(self, failure: BaseException) -> None:
        # After an error of the database the lock has ended its block itself, and may be kept.
        if self._undo is not None and not isinstance(failure, Error):
            self._undo()

    def _call(self, begin: Callable[[_H], None]) -> Call[_H | None]:
        lock, self._undo = self._lock, None

        def entered(hold: _H) -> None:
            self._undo = lock._undo_of_block()  # noqa: SLF001
            begin(hold)

        return lock._call(current(), True, self._timeout, entered, quiet=True)  # noqa: SLF001


class BlockEnd(NamedTuple):
    """The end of a block of several locks, for one of them: `undo` if `release` was interrupted."""

    release: Callable[[], object]
    undo: Callable[[], object]


class KeyLock(Lock[Hold]):
    """A lock of one key, which a multi-lock can take together with others."""

    key: str
    using: str
    #: Identifies it among the locks of its key: the alias, and the znode name with a suffix.
    _id: Identity

    def __init__(self, key: str, options: Options) -> None:
        self.key = key = templates.plain_text(key)
        self.options = options
        self.using = options.using
        self.template = options.template
        self._name = templates.znode_name(key)
        self._id = (self.using, self._name)

    @property
    def rank(self) -> tuple[int, str, str, str]:
        """The rank of the lock in the global order; locks of one rank are one lock.

        The smallest limit comes first: its waiters then take nothing from a wider one.
        A mutex and the read/write lock of one key share a queue, so the key comes before the kind.

        :meta private:
        """
        return 1, self.using, self._name, self._id[1]

    @abstractmethod
    def block_end(self) -> BlockEnd:
        """Return the end of a block that `entry` has begun.

        :meta private:
        """

    def _undo_of_block(self) -> Callable[[], object]:
        return self.block_end().undo

    def _bypass(self, error: LockUnavailable, owner: Owner | None = None) -> Hold:
        if self.options.on_unavailable == "raise" or type(error) is not LockUnavailable:
            raise error
        announce(lock_bypassed, self._recipe, self, error=error)
        hold = NoHold(self, error)
        if owner is not None:
            owner.bypassed.append(self)
        return hold

    def _end_bypassed(self, owner: Owner) -> bool:
        """End a block of this object that goes on without the lock, or return False.

        Of nested blocks of one object this may be the wrong one: the outer one releases then.
        """
        if self not in owner.bypassed:
            return False
        owner.bypassed.remove(self)
        return True

    @property
    def _recipe(self) -> type:
        """The sender of its signals."""
        return type(self)

    def _path(self, session: Session) -> str:
        if session.conf.key_prefix:
            refuse_other_prefix(self.key, self.using)
        return f"{session.root}/{self._name}"

    def _participants(self, below: str = "", **how: Any) -> list[Participant]:
        session = session_for(self.using)
        program = participants(session, f"{self._path(session)}{below}", **how)
        return session.run(program, key=self.key)

    def _new_hold(
        self, sender: type, grant: Any, since: float, keep: Callable[[Held], object]
    ) -> Hold:
        """Return the hold of a contender that was granted, or of a permit, and announce it.

        :param since: when the wait began (`time.monotonic`)
        :param keep: gives it to its owner
        """
        node = grant.node
        path = f"{grant.path}/{node.name}"
        hold = Hold(self.key, path, node.token, grant, using=self.using, template=self.template)
        hold.waited = time.monotonic() - since
        keep(Held(sender, hold, grant))
        if self.options.max_hold is not None:
            grant.give_up_after(self.options.max_hold)
        announce(lock_acquired, sender, hold, hold=hold, waited=hold.waited)
        return hold
