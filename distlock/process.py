"""Identifies this process, and lets a forked child forget what belongs to its parent."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_F = TypeVar("_F", bound="Callable[[], Any]")


class Process:
    """This process and its machine; compared by identity, as a pid may be used again."""

    __slots__ = ("host", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.host = socket.gethostname()


#: The current process. Read it as ``process.this``: a forked child gets its own.
this = Process()
#: The process in which the hooks of `in_child` have run; see `notice_fork`.
noticed_pid = this.pid
# Reentrant, for a signal handler that takes a first lock.
_noticing = threading.RLock()
_in_child: list[Callable[[], Any]] = []


def in_child(forget: _F) -> _F:
    """Call a function in each forked child, before it uses a lock; a decorator.

    Of the parent's threads only the one that forked goes on, and another may have held a lock.
    """
    _in_child.append(forget)
    return forget


def at_end_of_child(end: Callable[[], Any], priority: int) -> None:
    """Call a function at the end of a multiprocessing child, which runs no ``atexit``.

    :param priority: a greater one comes first
    """
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, end, exitpriority=priority)


def is_test_run() -> bool:
    """Return whether a runner of tests has set up Django's test environment.

    A ``mail.outbox`` is no sign of one: the mail backend ``locmem`` makes it anywhere.
    Source: ``django.test.utils.setup_test_environment``.
    """
    utils = sys.modules.get("django.test.utils")
    return hasattr(getattr(utils, "_TestState", None), "saved_data")


def interpreter() -> str:
    """Return the path of Python: `sys.executable` may be a program around it, such as uWSGI."""
    if Path(sys.executable or "").name.startswith(("python", "pypy")):
        return sys.executable
    return f"{sys.base_exec_prefix}/bin/python3"


def notice_fork() -> None:
    """Run the hooks of `in_child` where Python has not.

    By default, uWSGI forks its workers without telling Python (its ``uwsgi_python_post_fork`` calls
    ``PyOS_AfterFork_Child`` only with ``py-call-osafterfork``). So whoever looks for an owner or a
    session compares `noticed_pid` with `os.getpid`, which is cheap, and calls this if they differ.
    """
    if noticed_pid == os.getpid():
        return  # without the lock, which another thread might hold at a fork
    with _noticing:  # the first requests of a worker's threads come at once
        _begin()


def _begin() -> None:
    global this, noticed_pid  # noqa: PLW0603 - one per process
    if noticed_pid == os.getpid():
        return  # another thread was faster, or a hook that was registered before has taken a lock
    this = Process()
    for forget in _in_child:
        if noticed_pid != this.pid:  # or else a signal handler has begun anew meanwhile, and lives
            forget()
    noticed_pid = this.pid  # last: now other threads may go on


os.register_at_fork(after_in_child=_begin)
