"""Cancels a block of async code when its lock is lost, with the care of :func:`asyncio.timeout`.

A cancellation from outside wins over ours. Blocks may be nested. A body that swallows the
cancellation still gets `LockLost` at the end of the block. Python 3.10 merges two cancellations in
the same turn of the loop: there, ours wins if it comes first.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from django.dispatch import Signal

from distlock.exceptions import LockLost
from distlock.owner.hold import TOO_LATE, Hold, grant_of, lost
from distlock.signals import lock_lost

#: The blocks of each task, the innermost last.
_blocks: weakref.WeakKeyDictionary[asyncio.Task[Any], list[_Block]] = weakref.WeakKeyDictionary()


def refuse_without_block(lock: object) -> None:
    """Raise TypeError for ``cancel_on_loss=True`` outside of ``async with``."""
    raise TypeError(
        f"{lock!r} has cancel_on_loss=True, which cancels the body of an `async with` block. Use "
        "that, or leave the option out and call hold.check() before each step that counts: "
        "synchronous code cannot be interrupted."
    )


def begin(lock: object, *holds: Hold) -> None:
    """Cancel the current task when one of `holds` is lost, until `end` is called for `lock`."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError(f"{lock!r} has cancel_on_loss=True, and there is no task to cancel.")
    _blocks.setdefault(task, []).append(_Block(lock, task, holds))


def end(lock: object, error: BaseException | None) -> LockLost | None:
    """End the innermost block of `lock`, and return the error to raise in place of the body's.

    It returns None unless our own cancellation has ended the body, or the body has swallowed it.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # the coroutine is closed outside of any loop
        return None
    blocks = _blocks.get(task, []) if task is not None else []
    block = next((block for block in reversed(blocks) if block.lock is lock), None)
    if task is None or block is None:
        return None
    blocks.remove(block)
    if not blocks:
        del _blocks[task]
    return block.end(error)


class _Block:
    """One ``async with`` block, to cancel when one of its holds is lost."""

    def __init__(self, lock: object, task: asyncio.Task[Any], holds: Iterable[Hold]) -> None:
        self.lock = lock
        self._task = weakref.ref(task)  # which has this block in `_blocks`
        self._loop = task.get_loop()
        self._message = f"{lock!r} was lost."
        #: The number of pending cancellations, 0 before Python 3.11.
        self._cancelling: int = getattr(task, "cancelling", int)()
        self._over = False
        self._lost: Hold | None = None
        self._listeners = [(grant_of(hold), partial(self._changed, hold)) for hold in holds]
        for grant, listener in self._listeners:
            grant.listen(listener)

    def _changed(self, hold: Hold, news: Signal | None) -> None:
        if news is lock_lost:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._cancel, hold)

    def _cancel(self, hold: Hold) -> None:
        # In the loop, so the task waits for something in the body, or is about to go on there.
        task = self._task()
        if task is not None and self._lost is None and not self._over:
            self._lost = hold
            task.cancel(self._message)

    def end(self, error: BaseException | None) -> LockLost | None:
        self._over = True
        for grant, listener in self._listeners:
            grant.unlisten(listener)
        task = self._task()
        if self._lost is None or task is None:
            return None
        if self._cancelled_from_outside(task, error):
            return None
        if error is None or isinstance(error, asyncio.CancelledError):
            return lost(self._lost, TOO_LATE)
        return None  # the body's own exception takes precedence

    def _cancelled_from_outside(self, task: asyncio.Task[Any], error: BaseException | None) -> bool:
        """Withdraw our cancellation, and return whether there is another one."""
        uncancel = getattr(task, "uncancel", None)
        if uncancel is not None:
            return bool(uncancel() > self._cancelling)
        # Python 3.10 counts nothing, but each cancellation that is delivered has its message.
        return isinstance(error, asyncio.CancelledError) and error.args[:1] != (self._message,)
