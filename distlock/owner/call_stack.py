"""Finds the task or thread on whose behalf code runs, through asgiref's calls.

``sync_to_async`` runs a function in a thread for a task that awaits it. ``async_to_sync`` runs a
task for a thread that it blocks. The code inside cannot see that, and context variables do not tell
either, since child tasks inherit them. So this module reads the stacks: asgiref gives each call a
list (``task_context``) that is a local variable of both sides, and each ``async_to_sync`` a future
(``call_result``).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from asyncio import Task
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from operator import methodcaller
from threading import Thread
from types import FrameType
from typing import Any, Final, NamedTuple, cast

from asgiref.sync import AsyncToSync, SyncToAsync

#: asgiref's list for one call, compared by identity. asgiref uses its content to cancel the call.
Call = list[Any]

#: How many of the calls that lead to it a context remembers, with their tasks.
KNOWN_CALLS: Final = 4

#: These calls, the last one found first. To search for a task looks at all tasks and stacks.
_known: ContextVar[tuple[tuple[Call, weakref.ref[Task[Any]]], ...]] = ContextVar(
    "distlock_calls", default=()
)


class AbandonedCall(NamedTuple):
    """A call that goes on although its task was cancelled.

    Its thread is another actor, which may be blocked in ``async_to_sync`` and hold locks.
    """

    call: Call
    thread: Thread


class Found(NamedTuple):
    """The actor on whose behalf code runs, and the calls between the two, the innermost last."""

    actor: Task[Any] | Thread | AbandonedCall
    calls: tuple[Call, ...] = ()


def find() -> Found:
    """Return the task or thread that waits for this code, or that runs it for itself."""
    loop = running_loop()
    task = None if loop is None else asyncio.current_task(loop)
    if task is not None:
        return _behind(task)
    thread = threading.current_thread()
    if "task_context" not in asgiref_local.__dict__:
        return Found(thread)
    return _on(sys._getframe(), thread)  # noqa: SLF001 - inspect's is slower


def running(calls: Iterable[Call]) -> list[Call]:
    """Return the calls whose code has not returned yet, awaited or not."""
    present = {
        id(one.f_locals["task_context"])
        for frame in current_frames().values()
        for one in stack(frame)
        if one.f_code is _THREAD_HANDLER
    }
    return [call for call in calls if id(call) in present]


def _behind(task: Task[Any]) -> Found:
    """Return the actor for which `task` works: itself, or one that async_to_sync blocks."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    if frame is not None and frame.f_code is _NEW_LOOP:
        frame = getattr(frame.f_locals.get("awaitable"), "cr_frame", None)
    if frame is not None and frame.f_code is _MAIN_WRAP:
        result = frame.f_locals["call_result"]
        for thread in threading.enumerate():
            for one in stack(current_frames().get(thread.ident or 0)):
                if one.f_code is _ASYNC_TO_SYNC and one.f_locals.get("call_result") is result:
                    return _on(one.f_back, thread)
    return Found(task)


def _on(frame: FrameType | None, thread: Thread) -> Found:
    """Return the actor for code in `frame`: the task that awaits its last call, or `thread`."""
    for one in stack(frame):
        if one.f_code is _THREAD_HANDLER:
            call = one.f_locals["task_context"]
            task = _task_of_call(call, one.f_locals["loop"])
            if task is None:
                return Found(AbandonedCall(call, thread), (call,))
            actor, calls = _behind(task)
            return Found(actor, (*calls, call))
    return Found(thread)


def _task_of_call(call: Call, loop: asyncio.AbstractEventLoop) -> Task[Any] | None:
    """Return the task that awaits a call, None if it was abandoned."""
    known = _known.get()
    for one, reference in known:
        task = reference() if one is call else None
        if task is not None and _awaits(task, call):
            return task
    task = _search(call, loop)
    if task is not None:
        _known.set(((call, weakref.ref(task)), *known[: KNOWN_CALLS - 1]))
    return task


def _search(call: Call, loop: asyncio.AbstractEventLoop) -> Task[Any] | None:
    for _ in range(3):  # in case it suspends between the two looks
        running = _stack_that_begins(call)
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            if _awaits(task, call):
                return task
        # The thread may be faster than its task, which has not reached the await then.
        of_frame = {getattr(task.get_coro(), "cr_frame", None): task for task in tasks}
        for frame in running:
            if frame in of_frame:
                return of_frame[frame]
    return None


def _stack_that_begins(call: Call) -> list[FrameType]:
    """Return the frames, innermost first, of the thread that is just beginning this call."""
    for frame in current_frames().values():
        frames = list(stack(frame))
        for depth, one in enumerate(frames):
            if _has_call(one, call):
                return frames[depth:]
    return []


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _awaits(task: Task[Any], call: Call) -> bool:
    return _has_call(_innermost_frame(task.get_coro()), call)


def _has_call(frame: FrameType | None, call: Call) -> bool:
    return (
        frame is not None
        and frame.f_code is _SYNC_TO_ASYNC
        and frame.f_locals.get("task_context") is call
    )


def _innermost_frame(awaited: Any) -> Any:
    frame = None
    while awaited is not None:
        frame = (
            getattr(awaited, "cr_frame", None)
            or getattr(awaited, "gi_frame", None)
            or getattr(awaited, "ag_frame", None)
            or frame
        )
        awaited = (
            getattr(awaited, "cr_await", None)
            or getattr(awaited, "gi_yieldfrom", None)
            or getattr(awaited, "ag_await", None)
        )
    return frame


def current_frames() -> dict[int, FrameType]:
    """Return the current frame of each thread, without a garbage collection on the way.

    In Python 3.11 a collection that frees a `threading.local` then would stop the whole process for
    good (CPython 106883). C code makes all three calls within one instruction: neither a thread nor
    a signal can come in between.
    """
    if not gc.isenabled():
        return _frames_of_threads()
    _, frames, _ = map(methodcaller("__call__"), (gc.disable, _frames_of_threads, gc.enable))
    return cast("dict[int, FrameType]", frames)


#: asgiref's attributes of each thread. The dict is empty while no call has ever led to the thread.
asgiref_local: Final = SyncToAsync.threadlocal
#: Returns the loop that runs in this thread, None without one.
running_loop: Final = asyncio._get_running_loop  # noqa: SLF001 - does not raise
_frames_of_threads = sys._current_frames  # noqa: SLF001 - documented, in spite of its name
_SYNC_TO_ASYNC = SyncToAsync.__call__.__code__
_THREAD_HANDLER = SyncToAsync.thread_handler.__code__
_ASYNC_TO_SYNC = AsyncToSync.__call__.__code__
_MAIN_WRAP = AsyncToSync.main_wrap.__code__
_NEW_LOOP = next(
    (
        constant
        for constant in AsyncToSync.__call__.__code__.co_consts
        if getattr(constant, "co_name", None) == "new_loop_wrap"
    ),
    None,
)
