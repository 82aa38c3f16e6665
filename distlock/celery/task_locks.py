"""Finds the locks of a Celery task and their keys, and labels their nodes."""

from __future__ import annotations

from inspect import CO_VARARGS, CO_VARKEYWORDS, isfunction, ismethod
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
    runs = [task.run, *(vars(base).get("run") for base in type(task).__mro__)]
    layers: dict[int, Any] = {}
    for run in runs:
        _add_layers(run, layers)
    locks = {getattr(layer, "distlock", None): None for layer in layers.values()}
    return [locked for locked in locks if locked is not None]


def key_of_call(task: Any, locked: Locked, args: Any, kwargs: Any) -> str:
    """Return the key of a task's lock for the arguments of a message."""
    run = getattr(task, "_orig_run", task.run)  # autoretry_for puts a function around it
    bound = (task,) if ismethod(run) else ()
    return locked.key((*bound, *(args or ())), dict(kwargs or {}))


def _add_layers(function: Any, layers: dict[int, Any]) -> None:
    """Add a function and those that it wraps, even if its decorator forgot `functools.wraps`."""
    function = getattr(function, "__func__", function)
    if function is None or id(function) in layers:
        return
    layers[id(function)] = function
    if hasattr(function, "__wrapped__"):
        _add_layers(function.__wrapped__, layers)
        return
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & CO_VARARGS and code.co_flags & CO_VARKEYWORDS:
        for cell in function.__closure__ or ():
            if isfunction(cell.cell_contents):
                _add_layers(cell.cell_contents, layers)
