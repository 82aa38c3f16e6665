"""The life of a Celery worker and its processes: when sessions begin and end.

A pool's child inherits nothing of its parent's locks (`session` forgets them at the fork) and
connects when its first task wants a lock, as ``worker_process_init`` has four seconds for all. At
its end it closes its session, which frees what a task has left: ``atexit`` does not run in it. The
sessions of killed processes are ended by the session reaper, which `undertaker` starts beside a
worker and beside beat.
"""

from __future__ import annotations

from typing import Any

from celery import signals

from .session import close_sessions
from .undertaker import start_undertaker


def _worker_starts(conf: Any, **_: Any) -> None:
    """Before the pool is forked, with logging set up."""
    if conf.get("distlock_undertaker", True):
        start_undertaker()


def _beat_starts(sender: Any, **_: Any) -> None:
    """In the process of beat, which has closed the worker's socket where it is an embedded one."""
    _worker_starts(sender.app.conf)


def _child_ends(**_: Any) -> None:
    close_sessions()


def connect() -> None:
    """Connect to Celery's signals; may be repeated."""
    signals.celeryd_after_setup.connect(_worker_starts, weak=False)
    signals.beat_init.connect(_beat_starts, weak=False)
    signals.worker_process_shutdown.connect(_child_ends, weak=False)
