"""Celery: which task runs here, and what it leaves behind.

::

    @shared_task
    @zk_locked("feed:<feed_id>", on_busy="retry")
    def refresh(feed_id): ...

What such a task does while its lock is busy is in `task_runs`. This is imported when Celery is (see
`apps`), and connects to Celery's signals and to nothing else.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from celery import current_task, signals

from . import checks, decorators, workers
from .mutex import release_all
from .owner import current, label
from .task_runs import Run, label_of, locks_of, logger, task_refused

if TYPE_CHECKING:
    from .decorators import Locked
    from .owner import Owner

__all__ = ["connect", "task_refused"]


def _runner(locked: Locked) -> Run | None:
    """Return what runs a call of `locked` if it is the function of the task that runs here.

    A task that is called as a function is one; so is a task's function called within itself.
    """
    task = current_task and current_task._get_current_object()  # noqa: SLF001 - documented
    if not task or task.request.called_directly or locked not in locks_of(task):
        return None
    around = task.request.__dict__.setdefault("distlock_around", [])
    return None if locked in around else Run(task, locked, around)


def _begin(task: Any, **_: Any) -> None:
    owner = current()
    after = task.request.distlock_after = ExitStack()
    after.callback(_release_leftovers, owner, set(owner.held), task.name)
    after.enter_context(label(label_of(task)))


def _end(task: Any, **_: Any) -> None:
    task.request.__dict__.pop("distlock_after", ExitStack()).close()


def _release_leftovers(owner: Owner, before: set[tuple[str, str]], name: str) -> None:
    """Release what a task has left: the next task of this process would walk in."""
    for key in release_all(owner, keep=before):
        logger.error(
            "%s left the lock %r held; it was released now. Use `with zk_lock(…)`, which releases "
            "on every way out.",
            name,
            key,
        )


def _check(**_: Any) -> None:
    """Say what is wrong with the keys: Celery runs the checks before it knows the tasks."""
    for message in checks.check_templates():
        logger.error("%s", message)


def connect() -> None:
    """Connect to Celery; may be repeated."""
    decorators.task_runner = _runner
    for signal, receiver in (
        (signals.celeryd_after_setup, _check),
        (signals.task_prerun, _begin),
        (signals.task_postrun, _end),
    ):
        signal.connect(receiver, weak=False)
    workers.connect()


connect()
