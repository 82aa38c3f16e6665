"""Connects to Celery's signals: a task's run, and the life of workers, their processes and beat."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from celery import current_task, signals
from celery.exceptions import WorkerLostError

from distlock import decorators
from distlock.decorators import Locked
from distlock.history import flush
from distlock.locks.held_permits import held_by, release_leftovers
from distlock.owner.owner import current, label
from distlock.session.reaper import start_session_reaper
from distlock.session.registry import close_sessions, session_for

from .put_off import logger, pop_tickets
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
    for ticket in pop_tickets(task.request):  # of a task that has not called its function
        session_for(locks_of(task)[0].options.using).delete(ticket, 0)


def _give_back(task: Any, task_id: str, args: Any, kwargs: Any) -> None:
    """Remove the tickets of a task that does not come again, in the worker's main process."""
    for locked in locks_of(task):
        if locked.on_busy == "queue":
            session = session_for(locked.options.using)
            for template in locked.templates:
                key = key_of_call(task, locked, args, kwargs, template=template)
                Ticket(session, key, task_id, limited=locked.shares).give_back()


def _dropped(sender: Any, request: Any, **_: Any) -> None:
    """Hear of a task that was revoked, or has expired."""
    _give_back(sender, request.id, request.args, request.kwargs)


def _failed(sender: Any, task_id: str, exception: Any, args: Any, kwargs: Any, **_: Any) -> None:
    """Hear of a task whose process has died.

    If its message goes back to its queue there is no such signal, and the task keeps its place.
    Source: ``Request.on_failure`` in ``celery/worker/request.py``.
    """
    if isinstance(exception, WorkerLostError):
        _give_back(sender, task_id, args, kwargs)


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
signals.task_failure.connect(_failed)
signals.task_revoked.connect(_dropped)
signals.worker_process_shutdown.connect(_child_ends)
