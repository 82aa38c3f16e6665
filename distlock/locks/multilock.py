"""Acquires several locks, all or none: a port of Curator's ``InterProcessMultiLock``.

Unlike Curator it acquires them in one global order and against one deadline, and stops after one
has failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from distlock.conf import UNSET, configuration
from distlock.engine.calls import Call, Steps, Wake
from distlock.exceptions import LockBusy, LockLost, NotOwner
from distlock.logs.loggers import logger
from distlock.owner.hold import Hold
from distlock.owner.owner import Owner

from . import cancellation
from .lock import BlockEnd, Busy, KeyLock, Lock, Options
from .mutex import zk_lock


class MultiLock(Lock["tuple[Hold, ...]"]):
    """Several locks that are acquired together or not at all.

    `zk_multilock` makes it. As a context manager it yields the `Hold` of each lock, in the given
    order. It is as reentrant as its locks are, and safe to share between threads.
    Source: Curator's ``InterProcessMultiLock``.
    """

    def __init__(self, locks: Iterable[str | KeyLock | MultiLock], options: Options) -> None:
        locks = tuple(locks)
        self.locks = [lock for one in locks for lock in _locks_of(one, options)]
        cancels = any(one.options.cancel_on_loss for one in locks if not isinstance(one, str))
        self.options = replace(options, cancel_on_loss=options.cancel_on_loss or cancels)
        if not self.locks:
            raise ValueError("A multi-lock of nothing. Name at least one key or lock.")
        by_time = sorted(self.locks, key=lambda lock: lock.options.hold_at_least or 0)
        ranked = {lock.rank: lock for lock in by_time}  # a duplicate is acquired once
        self.in_order = [ranked[rank] for rank in sorted(ranked)]

    def __repr__(self) -> str:
        return f"zk_multilock({', '.join(map(repr, self.locks))})"

    def release(self) -> None:
        """Release all locks, the last one first, even if some fail.

        :raises NotOwner, LockLost: the first failure, once all were tried; the others are logged
        """
        self.__exit__(None, None, None)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        ends = None
        try:
            ends = self._block_ends()
            _attempt_all([end.release for end in ends])
        except (LockLost, NotOwner):
            if error is None:  # the body's own takes precedence
                raise
        finally:  # one may have been interrupted, or never have begun
            _attempt_all([end.undo for end in ends or self._block_ends()])

    def _undo_of_block(self) -> Callable[[], object]:
        return partial(_attempt_all, [end.undo for end in self._block_ends()])

    def _block_ends(self) -> list[BlockEnd]:
        return [lock.block_end() for lock in reversed(self.in_order)]

    def _aentered(self, hold: tuple[Hold, ...]) -> None:
        if self.options.cancel_on_loss:
            cancellation.begin(self, *set(hold))

    def _call(
        self,
        owner: Owner,
        blocking: bool,
        timeout: Any,
        entered: Callable[[tuple[Hold, ...]], object] | None = None,
        *,
        quiet: bool = False,
    ) -> Call[tuple[Hold, ...] | None]:
        limit = self._wait_limit(blocking, timeout)
        started = time.monotonic()
        calls: list[Call[Any]] = []
        quiet = quiet or entered is None

        def steps(wake: Wake) -> Steps[tuple[Hold, ...] | None]:
            holds: dict[tuple[int, str, str, str], Hold] = {}
            try:
                for lock in self.in_order:
                    left = _time_left(lock, limit, time.monotonic() - started)
                    call = lock._call(owner, True, left, lock._entered, quiet=quiet)  # noqa: SLF001
                    calls.append(call)
                    hold = yield from call.steps(wake)
                    if hold is None:
                        undo()
                        return None
                    holds[lock.rank] = hold
            except LockBusy as busy:
                undo()
                if quiet:
                    return None
                busy.waited = time.monotonic() - started
                together = f"{len(self.in_order)} locks that are taken together"
                busy.args = (f"{busy} It is one of {together}, in {busy.waited:.1f} s so far.",)
                raise
            for hold in holds.values():
                hold.check()  # it may be lost, while this call waited for the others
            taken = tuple(holds[lock.rank] for lock in self.locks)
            if entered is not None:
                entered(taken)
            return taken

        def undo() -> None:
            _attempt_all([call.undo for call in reversed(calls)])

        return Call(steps, undo)


def _time_left(lock: KeyLock, limit: float | None, waited: float) -> float | None:
    if limit is None:
        return None
    if limit and limit - waited < -0.1:  # seconds: its answer may take 0.4 s
        raise LockBusy(
            f"The lock {lock.key!r} was not tried, since no time was left.",
            key=lock.key,
            retry_after=configuration(lock.using).retry_after,
            using=lock.using,
        )
    return max(limit - waited, 0.0)


def _attempt_all(steps: Iterable[Callable[[], object]]) -> None:
    """Run all steps, even if some raise, and raise the first exception at the end."""
    errors: list[BaseException] = []
    for step in steps:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
    if errors:
        # An exit or Ctrl-C takes precedence.
        first = next((error for error in errors if not isinstance(error, Exception)), errors[0])
        for other in errors:
            if other is not first:
                logger.error("Another lock could not be released: %s", other, exc_info=other)
        raise first


def _locks_of(given: str | KeyLock | MultiLock, options: Options) -> list[KeyLock]:
    if isinstance(given, MultiLock):
        return given.locks
    if isinstance(given, str) or given is None:  # None is no key, and raises
        return [zk_lock(given, using=options.using, max_hold=options.max_hold, until=options.until)]
    if not isinstance(given, KeyLock):
        raise TypeError(
            f"A multi-lock is made of keys and locks, not of {given!r:.80}. Unpack a list with *, "
            "and say .read or .write of a read/write lock."
        )
    if given.options.database is not None:
        raise ValueError(
            f"{given!r} has atomic=, and cannot be taken with others: its transaction would begin "
            "before they are held. Open the transaction inside the block of all."
        )
    if given.options.on_unavailable == "proceed":
        raise ValueError(
            f'{given!r} has on_unavailable="proceed", and locks that are taken together are held '
            "all or none. Leave it out, and catch LockUnavailable."
        )
    return [given]


def zk_multilock(
    *locks: str | KeyLock | MultiLock,
    timeout: float | timedelta | None = UNSET,
    using: str = "default",
    max_hold: float | timedelta | None = None,
    until: Literal["block", "commit"] = "block",
    cancel_on_loss: bool = False,
    busy: Busy | None = None,
) -> MultiLock:
    """Return a lock that acquires several locks, all or none.

    ::

        with zk_multilock(*(f"stock:{sku}" for sku in basket), timeout=2) as holds:
            ...

    It acquires them by alias and then by key, whatever the given order, and then semaphores, the
    smallest limit first, so two multi-locks on the same keys never deadlock. This is only true of
    locks taken at once: take all that you need in one multi-lock. It acquires a duplicate once.

    :param locks: keys, locks (`zk_lock`, the two of `zk_rwlock`, one permit of a `zk_semaphore`)
        and other multi-locks, of any alias; their own ``timeout`` does not count
    :param timeout: seconds to wait (number or timedelta) for all together, 0 to try each once, None
        for ever; by default the setting ``TIMEOUT`` (5 s) of `using`
    :param using: the alias in ``DISTLOCK`` of the keys
    :param max_hold: seconds (number or timedelta) after which the hold of each key is given up, as
        in `zk_lock`; it counts from the grant of each
    :param until: "commit" keeps the locks of the keys until an open transaction has ended, as in
        `zk_lock`
    :param cancel_on_loss: True cancels the body of ``async with`` when any of them is lost, as in
        `zk_lock`; the same option of one of `locks` has this effect, too
    :param busy: raised in place of `LockBusy`, as in `zk_lock`
    :raises ValueError: `locks` is empty or has a lock with ``atomic=``, or `max_hold` is not above
        0
    :raises TypeError: `locks` has something other than keys and locks, such as a list
    :raises LockKeyError: a key is empty or no valid text
    """
    options = Options(
        timeout=timeout,
        using=using,
        max_hold=max_hold,
        until=until,
        cancel_on_loss=cancel_on_loss,
        busy=busy,
    )
    return MultiLock(locks, options)
