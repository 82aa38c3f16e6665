"""Finds the owner of the running code: a thread in threaded code, a task in async code.

A lock is reentrant for its owner, so a wrong answer here breaks mutual exclusion. A thread id alone
will not do (it is recycled, and worker threads serve many tasks), nor will a context variable alone
(child tasks inherit it). The rules:

- code in a task belongs to that task, code in a thread to that thread, by a mark in its context;
- in a thread of a `ThreadPoolExecutor`, each job is an owner: two ``run_in_executor`` calls of two
  tasks may get the same thread (``concurrent.futures.thread._WorkItem.run`` calls the function in
  the thread's own context; only ``asyncio.to_thread`` copies one);
- a call with asgiref's ``sync_to_async`` or ``async_to_sync`` belongs to the task or thread that
  awaits it, as read from the stacks (`call_stack`). If the stacks do not tell, the call is a new
  owner: it may then wait for a lock that it could have re-entered;
- a call that goes on after its task was cancelled, such as a sync view under ASGI whose client has
  disconnected, belongs to the owner for which it has acted before, and releases its locks.
"""

from __future__ import annotations

import concurrent.futures.thread
import json
import sys
import threading
import time
import weakref
from asyncio import Task
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from os import getpid
from threading import Thread, current_thread
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

from distlock import process
from distlock.conf import Configuration
from distlock.logs.loggers import logger
from distlock.transactions import end_statements

from .call_stack import (
    AbandonedCall,
    Call,
    asgiref_local,
    current_frames,
    find,
    running,
    running_loop,
    stack,
)
from .hold import Held

#: The number of calls that an owner notes before it drops those that have ended.
MANY_CALLS: Final = 8

#: Identifies a lock: the alias, and the znode name with the kind of hold.
Identity: TypeAlias = tuple[str, str]

_as_json = json.JSONEncoder(separators=(",", ":")).encode
#: A text, or a function that returns it for an alias's settings: a request learns its route late.
_label: ContextVar[str | Callable[[Configuration], str]] = ContextVar("distlock_label", default="")
_DEFAULTS: Final = Configuration()
MAX_LABEL: Final = 200


class Owner:
    """A thread, task or call that can hold locks. Only its own code changes `held`."""

    __slots__ = (
        "_calls",
        "_id",
        "_said",
        "_worker",
        "beside",
        "bypassed",
        "held",
        "here",
        "process",
        "thread",
    )

    def __init__(self, worker: str, thread: Thread | None = None) -> None:
        self._id = ""
        self._worker = worker[:100]
        #: The thread of this owner, None for a task, and when a pool's job has ended.
        self.thread = thread
        #: For code of a pool's thread outside of a job: an initializer, or a callback of a job.
        self.beside: _Job | None = None
        #: The dict of `asgiref_local` in that thread, once it was found there.
        self.here: dict[str, Any] | None = None
        #: Another one in a forked child, where the parent's owners hold nothing.
        self.process = process.this
        self._calls: list[Call] = []
        #: A label and a template, and the data of `describe` for them without the time.
        self._said = "", "", ""
        #: Its holds, with their counts, by (alias, path).
        self.held: dict[Identity, Held] = {}
        #: The locks of its blocks that go on without them. It is the object that counts: the block
        #: of a generator may end inside another one that has the lock.
        self.bypassed: list[object] = []

    def __del__(self) -> None:
        """Log the locks that a thread leaves held at its end, when nobody refers to its owner."""
        if not getattr(self, "held", None) or sys.is_finalizing():  # or `__init__` was interrupted
            return
        if self.thread is not None and self.process is process.this:
            _tell_left_behind(self, f"thread {self.thread.name}")

    def acts_for(self, thread: Thread) -> bool:
        """Whether code that belongs to this thread now belongs to this owner."""
        # A mark may be inherited from another thread or, after a fork, from another process.
        return (
            self.thread is thread
            and self.process is process.this
            and (self.beside is None or self.beside == _job_in(thread))
        )

    def end_job(self, _: object) -> None:
        """Log the locks that a pool's job leaves held, and never be the owner of the next job."""
        thread, self.thread, self.here = self.thread, None, None
        if thread is not None:
            _tell_left_behind(self, f"job in the thread {thread.name}")

    @property
    def has_running_calls(self) -> bool:
        """Whether a call that acts for this owner has not returned yet, awaited or not."""
        return bool(self._calls and running(self._calls))

    def acts_in(self, call: Call) -> bool:
        """Return whether this call has acted for this owner."""
        return any(one is call for one in self._calls)

    def act_in(self, calls: tuple[Call, ...]) -> None:
        """Note the calls that act for this owner."""
        new = [call for call in calls if not self.acts_in(call)]
        if new and len(self._calls) >= MANY_CALLS:
            self._calls = running(self._calls)
        self._calls.extend(new)

    def depth(self, identity: Identity) -> int:
        """Return how often it has acquired a lock and not released."""
        held = self.held.get(identity)
        return 0 if held is None or held.grant.left else held.count

    def back_to(self, depth: int, identity: Identity) -> None:
        """Undo the acquires of a call or block that was interrupted, down to a `depth`."""
        held = self.held.get(identity)
        if held is None:
            return
        if depth > 0:
            held.count = min(held.count, depth)
        else:
            self.let_go(identity, held)

    def let_go(self, identity: Identity, held: Held, *, clean: bool = False) -> Exception | None:
        """Release a lock, however often it was acquired; return the error of an old lock beside it.

        :param clean: whether its transaction has just ended, so that no statement is under way
        """
        if not clean and sys.exc_info()[0] is not None:
            end_statements(held.transactions)
        # In this order, an interrupted call can be repeated.
        held.grant.leave()
        error = held.release_old and held.release_old()
        self.held.pop(identity, None)
        held.announce_end()
        return error

    def release_all(self, *, keep: Collection[object] = ()) -> list[str]:
        """Release all locks but `keep`, however often acquired, and return their keys.

        Those that an open transaction keeps end with it.
        """
        released = []
        held_by_code = [one for one, held in self.held.items() if held.count > held.kept]
        left = [identity for identity in held_by_code if identity not in keep]
        if left:
            end_statements()
        for identity in left:
            held = self.held.get(identity)  # it may have ended with a connection just now
            if held is not None:
                self.let_go(identity, held)
                released.append(held.hold.key)
        return released

    @property
    def id(self) -> str:
        """A text that identifies this owner among those of all processes."""
        self._id = self._id or uuid4().hex
        return self._id

    def describe(self, conf: Configuration = _DEFAULTS, template: str = "") -> bytes:
        """Return the data for this owner's nodes, without arguments, query strings and secrets.

        With the setting ``NODE_DATA = "owner"`` it has only the owner's id.

        :param template: that of the key
        """
        if conf.node_data != "full":
            return _as_json({"v": 1, "owner": self.id}).encode()
        label = _label.get()
        if not isinstance(label, str):
            label = label(conf)[:MAX_LABEL]
        described, of, said = self._said
        if not said or label != described or template != of:
            facts = {
                "v": 1,
                "owner": self.id,
                "host": process.this.host,
                "pid": process.this.pid,
                "worker": self._worker,
                "label": label,
                **({"template": template} if template else {}),
            }
            said = _as_json(facts).removesuffix("}")
            self._said = label, template, said
        return f'{said},"since":{time.time():.3f}}}'.encode()


def current(*, look: bool = True) -> Owner:
    """Return the owner on whose behalf this code runs.

    :param look: whether to look first if this is a forked child, which takes a third of the time;
        without it, the caller has to look before others can notice what it does
    """
    if look and process.noticed_pid != getpid():
        process.notice_fork()
    owner = _of_thread.get(None)
    if (  # a short cut: the rest would find the same, in five times the time
        owner is not None
        and owner.here is asgiref_local.__dict__
        and not owner.here
        and running_loop() is None
        and owner.process is process.this
    ):
        return owner
    found = find()
    who: Any = found.actor
    if isinstance(who, AbandonedCall):
        owner = _owner_of_abandoned(who)
    elif isinstance(who, Thread) or who is current_thread():  # gevent's greenlets are no Thread
        owner = _owner_of_thread(who)
    else:
        owner = _owner_of_task(who)
    if found.calls:
        owner.act_in(found.calls)
        _of_call.set(owner)
    return owner


@contextmanager
def label(text: str | Callable[[Configuration], str]) -> Iterator[None]:
    """Name the work of this code, such as ``celery beat``, or a function that returns that name."""
    token = _label.set(text[:MAX_LABEL] if isinstance(text, str) else text)
    try:
        yield
    finally:
        _label.reset(token)


# --- threads and tasks ---------------------------------------------------------------------------

_of_thread: ContextVar[Owner] = ContextVar("distlock_owner")
_of_call: ContextVar[Owner] = ContextVar("distlock_owner_of_call")
_of_task: weakref.WeakKeyDictionary[Task[Any], Owner] = weakref.WeakKeyDictionary()


class _OfThread(threading.local):
    """A thread's owner, independent of the context in which the thread runs."""

    owner: Owner | None = None


_local = _OfThread()


def _owner_of_thread(thread: Thread) -> Owner:
    owner = _of_thread.get(None)
    if owner is None or not owner.acts_for(thread):
        owner = _local.owner
        if owner is None or not owner.acts_for(thread):
            owner = Owner(thread.name, thread)
            # Other kinds, such as anyio's, may do the work of many, each in a context of its own.
            if type(thread) is Thread or isinstance(thread, threading._MainThread):  # type: ignore[attr-defined]  # noqa: SLF001
                job = _job_in(thread)
                if job is not None and job.future is not None and not job.done:
                    job.future.add_done_callback(owner.end_job)
                else:
                    owner.beside = job
                _local.owner = owner
        _of_thread.set(owner)
    # If gevent has patched threads too late, all greenlets of a thread share asgiref's dict.
    if (
        owner.beside is None
        and thread is current_thread()
        and isinstance(asgiref_local, threading.local)
    ):
        owner.here = asgiref_local.__dict__
    return owner


class _Job(NamedTuple):
    """A job of a `ThreadPoolExecutor`; without a future, its thread is between two of them."""

    future: Future[Any] | None = None
    #: Whether it calls what was to be called when the job is done.
    done: bool = False


def _job_in(thread: Thread) -> _Job | None:
    """Return what a thread does for a `ThreadPoolExecutor`, None where it is none of a pool.

    The thread that runs the job calls its callbacks, before it takes the next job.
    """
    own = thread is current_thread()
    for frame in stack(sys._getframe() if own else current_frames().get(thread.ident or 0)):  # noqa: SLF001 - inspect's is slower
        if frame.f_code is _RUN:
            job: Future[Any] = frame.f_locals["self"].future
            return _Job(job, job.done())
        if frame.f_code is _WORKER:
            return _Job()
    return None


#: The code that runs a job, also in asyncio's pool, and that of the pool's threads.
_RUN: Final = concurrent.futures.thread._WorkItem.run.__code__  # noqa: SLF001
_WORKER: Final = concurrent.futures.thread._worker.__code__  # noqa: SLF001


def _owner_of_task(task: Task[Any]) -> Owner:
    owner = _of_task.get(task)
    if owner is None:
        owner = _of_task[task] = Owner(task.get_name())
        task.add_done_callback(partial(_task_ends, owner))
    return owner


def _task_ends(owner: Owner, task: Task[Any]) -> None:
    if not owner.has_running_calls:  # a function that runs on in its thread will release them
        _tell_left_behind(owner, f"task {task.get_name()}")


def _tell_left_behind(owner: Owner, what: str) -> None:
    """Log the locks that a thread, a job or a task leaves held at its end.

    They stay held: the code that awaited a task may go on as if it held the lock, such as
    ``await wait_for(lock.aacquire(), 5)``, which makes a task of its own before Python 3.12.
    """
    for held in owner.held.values():
        if not (held.hold.lost or held.grant.session.over):
            logger.error(
                "The %s has ended and left the lock %r held. Nobody can release it any more, and "
                "nobody gets it while this process lives. Use `with` or `async with`, which "
                "release on every way out; limit a wait with the lock's own timeout=, for "
                "asyncio.wait_for() may run aacquire() in a task of its own; and close an async "
                "generator that holds a lock with contextlib.aclosing().",
                what,
                held.hold.key,
            )


def _owner_of_abandoned(call: AbandonedCall) -> Owner:
    owner = _of_call.get(None)
    # A mark may be inherited from another call or, after a fork, from another process.
    if owner is None or not owner.acts_in(call.call) or owner.process is not process.this:
        owner = Owner(call.thread.name)
    return owner


process.in_child(_of_task.clear)
