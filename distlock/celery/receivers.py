"""Connects to Celery's signals: a task's run, and the life of workers, their processes and beat."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from celery import current_task, signals

from distlock import decorators
from distlock.decorators import Locked
from distlock.exceptions import LockUnavailable
from distlock.history import flush
from distlock.locks.held_permits import held_by, release_leftovers
from distlock.owner.owner import current, label
from distlock.session.reaper import start_session_reaper
from distlock.session.registry import close_sessions, session_for

from .put_off import logger
from .runs import Run, key_of_call, label_of, locks_of
from .tickets import Ticket
from .wakes import Wakes


def _runner(locked: Locked) -> Run | None:
    """Return the run of a call of `locked`, if that is the function of the running task."""
    task = current_task and current_task._get_current_object()  # noqa: SLF001 - documented
    if not task or task.request.called_directly or locked not in locks_of(task):
        return None
    around = task.request.__dict__.setdefault("distlock_around", [])
    return None if locked in around else Run(task, locked, around)


def _begin(task: Any, **_: Any) -> None:
    owner = current()
    after = task.request.distlock_after = ExitStack()
    after.callback(release_leftovers, owner, task.name, keep=held_by(owner), logger=logger)
    after.enter_context(label(label_of(task)))


def _end(task: Any, **_: Any) -> None:
    task.request.__dict__.pop("distlock_after", ExitStack()).close()


def _dropped(sender: Any, request: Any, **_: Any) -> None:
    """Remove the tickets of a task that was revoked, or has expired."""
    for locked in locks_of(sender):
        if locked.on_busy == "queue":
            key = key_of_call(sender, locked, request.args, request.kwargs)
            session = session_for(locked.options.using)
            ticket = Ticket(session, key, request.id, limited=locked.shares)
            try:
                ticket.look()
                ticket.leave()
            except LockUnavailable as error:
                logger.warning("A ticket for the lock %r is left to its end: %s", key, error)


def _worker_starts(conf: Any, **_: Any) -> None:
    """Start the reaper before the pool is forked, with logging set up."""
    if conf.get("distlock_session_reaper", True):
        start_session_reaper()


def _worker_listens(instance: Any, **_: Any) -> None:
    instance.app.steps["consumer"].add(Wakes)


def _beat_starts(sender: Any, **_: Any) -> None:
    """Start a reaper for beat: an embedded beat has closed the worker's socket."""
    _worker_starts(sender.app.conf)


def _child_ends(**_: Any) -> None:
    close_sessions()
    flush()


decorators.task_runner = _runner
signals.celeryd_after_setup.connect(_worker_starts)
signals.celeryd_init.connect(_worker_listens)
signals.beat_init.connect(_beat_starts)
signals.task_prerun.connect(_begin)
signals.task_postrun.connect(_end)
signals.task_revoked.connect(_dropped)
signals.worker_process_shutdown.connect(_child_ends)
