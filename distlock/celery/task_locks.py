"""Finds the locks of a Celery task and their keys, and labels their nodes."""

from __future__ import annotations

from inspect import ismethod
from typing import TYPE_CHECKING, Any

from distlock.owner.owner import MAX_LABEL

if TYPE_CHECKING:
    from distlock.decorators import Locked


def label_of(task: Any, *, retries: int | None = None) -> str:
    """Return the label of a task's nodes: ``feeds.tasks.refresh[<id>]``.

    A task that retries while it holds a lock may still hold it when its next run asks. The next
    run is no copy, so the label has its count: ``… retry 2``.
    """
    count = task.request.retries if retries is None else retries
    task_id = f"[{task.request.id}]"
    name = task.name[: MAX_LABEL - len(task_id) - len(" retry 99999")]
    return f"{name}{task_id}" + (f" retry {count}" if count else "")


def locks_of(task: Any) -> list[Locked]:
    """Return the locks on a task's own function, and on the functions that its class overrides."""
    locks: dict[Locked | None, None] = {}
    for run in (task.run, *(vars(base).get("run") for base in type(task).__mro__)):
        layer = run
        while layer is not None:
            locks[getattr(layer, "distlock", None)] = None
            layer = getattr(layer, "__wrapped__", None)
    return [locked for locked in locks if locked is not None]


def key_of_call(task: Any, locked: Locked, args: Any, kwargs: Any) -> str:
    """Return the key of a task's lock for the arguments of a message."""
    run = getattr(task, "_orig_run", task.run)  # autoretry_for puts a function around it
    bound = (task,) if ismethod(run) else ()
    return locked.key((*bound, *(args or ())), dict(kwargs or {}))
