"""Ends the sessions of a process on SIGTERM, so that its locks are free at once.

By default the signal ends a process on the spot: no ``finally`` and no ``atexit`` runs, and the
locks stay held until ZooKeeper expires the session.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from django.core.management import ManagementUtility

from distlock import process

if TYPE_CHECKING:
    from types import FrameType

#: How long the process waits for its sessions to end, in seconds.
RELEASE_SECONDS: Final = 3.0


def release_on_sigterm() -> None:
    """End this process's sessions on SIGTERM, and then handle the signal as before.

    For scripts and daemons. Management commands, Celery and gunicorn need no call. Call it in the
    main thread, after you have set a handler of your own, if any: yours runs once the locks are
    free, so it should end the process. An ignored SIGTERM stays ignored.

    You may call it more than once. A forked child inherits the handler.

    :raises ValueError: called outside the main thread, which alone may set signal handlers
    """
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_IGN and not isinstance(before, _Release):
        signal.signal(signal.SIGTERM, _Release(before))


class _Release:
    """Releases, and then calls the earlier handler; None for one that Python has not set."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if callable(self._before):
            _release()
            self._before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
            _release()
            signal.raise_signal(number)
            # The default does not end the first process of a container, but the process must end:
            # its locks are gone.
            os._exit(128 + number)


def _release() -> None:
    """End the sessions in a thread: the interrupted code may hold a lock that this needs.

    A child that has just been forked, and still knows its parent's sessions, has none of its own.
    """
    registry = sys.modules.get(f"{__package__}.registry")
    if registry is None or process.noticed_pid != os.getpid():
        return
    done = threading.Lock()
    done.acquire()

    def release() -> None:
        try:
            registry.close_sessions()
        finally:
            done.release()

    with suppress(RuntimeError):  # no thread can be started
        # Unlike Thread.start(), this waits for nothing.
        _thread.start_new_thread(release, ())
        done.acquire(timeout=RELEASE_SECONDS)


def release_in_commands() -> None:
    """Call `release_on_sigterm` in a management command that has no handler yet.

    A handler that the command sets later replaces this one. Django's start and each new session
    call this, since a program may start Django before it runs the command.
    """
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        and _in_a_command()
    ):
        release_on_sigterm()


def _in_a_command() -> bool:
    command = ManagementUtility.execute.__code__
    return any(frame.f_code is command for frame, _ in traceback.walk_stack(None))
