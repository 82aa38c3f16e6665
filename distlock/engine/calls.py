"""Runs a call that waits, blocking or awaiting, so that its steps are written once.

The steps are a generator, as httpx's ``auth_flow`` is: it yields the seconds for which it waits to
be woken, and returns the result. `Call.run` waits at a latch, and `Call.arun` at a future of the
event loop. Neither knows what the steps do; the steps do not know how they wait.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from distlock.exceptions import LockUnavailable
from distlock.process import in_child

_T = TypeVar("_T")

#: Ends a wait early. Any thread may call it.
Wake: TypeAlias = Callable[[], None]
#: Yields seconds to wait, which pass at most, and returns the result.
Steps: TypeAlias = Generator[float, None, _T]


class _ThisThread(threading.local):
    """Knows of each thread whether it is one of ours."""

    #: Whether it is one of ours: the connection's, the heartbeat's or the timer's.
    ours = False


this_thread = _ThisThread()


@in_child
def _forget_the_parent() -> None:
    this_thread.ours = False  # one of ours may have forked, in a receiver


def refuse_our_threads() -> None:
    """Raise on a thread of ours, which must not wait for what it has to do itself.

    Python's garbage collector runs finalisers on any thread, ours too.

    :raises LockUnavailable: says what to do instead
    """
    if this_thread.ours:
        raise LockUnavailable(
            "One of distlock's own threads cannot wait for a lock. Take none in a finaliser, such "
            "as __del__(), nor in a receiver of lock_lost, lock_at_risk or lock_safe: set a flag "
            "there, or let a thread of your own take the lock.",
            key="",
        )


def start_thread(thread: threading.Thread) -> None:
    """Start a thread of ours.

    :raises LockUnavailable: says why it cannot be started
    """
    try:
        if sys.is_finalizing():
            raise RuntimeError("can't start new thread")  # noqa: TRY301 - Python's own words
        thread.start()
    except RuntimeError as error:  # in Python 3.12 also in `atexit` (CPython 113964)
        if "new thread" not in str(error):
            raise
        raise LockUnavailable(
            f"A thread that distlock needs cannot be started: {error}. At the end of a program, "
            "release locks before Python shuts down, and take none in __del__() or atexit.",
            key="",
        ) from error


class Call(Generic[_T]):
    """The steps of one call, and the way back.

    An exception may land between any two steps, also after the last one: a soft time limit, Ctrl-C,
    a cancellation. The steps clean up nothing. `undo` does.

    :param steps: makes the steps, given the function that wakes them; they never block
    :param undo: takes back what the steps have done so far; any number of calls are fine
    """

    __slots__ = ("steps", "undo")

    def __init__(self, steps: Callable[[Wake], Steps[_T]], undo: Callable[[], object]) -> None:
        self.steps = steps
        self.undo = undo

    def run(self) -> _T:
        """Block until the steps are done, and return their result."""
        if this_thread.ours:
            refuse_our_threads()
        try:
            latch = threading.Lock()
            latch.acquire()
            steps = self.steps(partial(_open, latch))
            try:
                while True:
                    latch.acquire(timeout=next(steps))
            except StopIteration as end:
                result: _T = end.value
                return result
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        try:
            self.undo()
        except BaseException:  # an exception may land here, too
            self.undo()
            raise

    async def arun(self) -> _T:
        """Do as `run` does, without a thread."""
        try:
            latch = _LoopLatch(self.undo)
            steps = self.steps(latch.open)
            try:
                while True:
                    await latch.wait(next(steps))
            except StopIteration as end:
                result: _T = end.value
                return result
        except BaseException:
            self._undo()
            raise


class Latch:
    """An event to wait for, which an exception from a signal handler cannot break.

    `threading.Event` raises a RuntimeError of its own when one lands inside its condition.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        _open(self._lock)

    def wait(self, seconds: float) -> None:
        if self._lock.acquire(timeout=seconds):
            self.open()


def _open(lock: threading.Lock) -> None:
    try:  # noqa: SIM105 - suppress() makes three calls, at each acquire
        lock.release()
    except RuntimeError:  # open already
        pass


class _LoopLatch:
    """A latch for a task; `orphaned` is called when its loop is closed, and it will never go on."""

    def __init__(self, orphaned: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._orphaned = orphaned

    def open(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._open)
        except RuntimeError:
            self._orphaned()

    def _open(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    async def wait(self, seconds: float) -> None:
        # wait_for would swallow a cancellation in the instant of the grant (bpo-37658).
        await asyncio.wait([self._opened], timeout=seconds)
        if self._opened.done():
            self._opened = self._loop.create_future()
