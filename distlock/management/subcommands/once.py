"""`manage.py distlock once`: the Celery tasks that are queued once, and freeing the key of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.inspection.tree import look, snapshot
from distlock.lease.nodes import LeaseHolder
from distlock.management.acting import act, add_record
from distlock.management.output import (
    NOTHING,
    USAGE,
    add_options,
    exit_statuses,
    table,
    write_json,
)
from distlock.text import clipped, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from distlock.inspection.state import Contender, Lock, Snapshot

HELP = "List the Celery tasks that are queued once, or let another one be queued."

HEADING = ("TASK", "ID", "UNTIL", "KEY")


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--free",
        metavar="KEY",
        help="let another task be queued with this key, as the list tells it; the first one is "
        "not stopped",
    )
    add_record(parser)
    add_options(parser)


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    if options["free"] is None and (options["reason"] or options["user"] is not None):
        raise CommandError("--reason and --user go with --free KEY.", returncode=USAGE)
    names = _names_of_tasks()
    with exit_statuses():
        if options["free"] is None:
            _list(command, options, names)
        else:
            _free(command, options, names)


def _list(command: BaseCommand, options: dict[str, Any], names: Collection[str]) -> None:
    seen = snapshot(
        options["using"],
        select=lambda key: bool(_task_of(key, names)),
        budget=options["budget"],
    )
    found = [_facts(lock, one, names) for lock, one in _leases(seen)]
    if options["json"]:
        write_json(command, {"taken_at": seen.taken_at.isoformat(), "leases": found})
    elif found:
        rows = [[value or "?" for value in lease.values()] for lease in found]
        command.stdout.write(table([HEADING, *rows]))
    else:
        command.stderr.write(f"No task is queued once in {seen.namespace}.")
    if seen.cut:
        command.stderr.write("The time was up, and not all was read. Give it more with --budget.")


def _free(command: BaseCommand, options: dict[str, Any], names: Collection[str]) -> None:
    seen = look(options["free"], options["using"], budget=options["budget"])
    found = [(lock, one) for lock, one in _leases(seen) if _task_of(lock.key, names)]
    if not found:
        raise CommandError(
            f"No task is queued once with the key {options['free']!a}. `distlock once` lists the "
            "keys.",
            returncode=NOTHING,
        )
    done = [one["broken"] for one in act("break", found, options)]
    if options["json"]:
        leases = [_facts(lock, one, names) for lock, one in found]
        freed = [{**lease, "freed": freed} for lease, freed in zip(leases, done, strict=True)]
        write_json(command, freed)
    elif all(done):
        command.stdout.write(f"Freed: {printable(options['free'])}")
    if not all(done):
        raise CommandError("Not freed, for the task has ended meanwhile.", returncode=NOTHING)


def _names_of_tasks() -> list[str]:
    """Return the names of the current Celery app's tasks that are queued once.

    :raises CommandError: it has none
    """
    try:
        from celery import current_app  # noqa: PLC0415 - a site may have no Celery

        from distlock.celery.queued_once import QueuedOnce  # noqa: PLC0415
    except ImportError:
        raise CommandError(
            "Celery is not installed. Install django-distlock[celery].", returncode=USAGE
        ) from None
    current_app.loader.import_default_modules()
    names = [name for name, task in current_app.tasks.items() if isinstance(task, QueuedOnce)]
    if not names:
        raise CommandError(
            f"The Celery app {current_app.main!a} has no task with the base QueuedOnce. Name the "
            "app that has: `celery -A proj distlock once`.",
            returncode=USAGE,
        )
    return names


def _task_of(key: str, names: Collection[str]) -> str:
    """Return the name of the task at the beginning of a lease's key, or an empty text."""
    return max((name for name in names if key.startswith(f"{name}:")), key=len, default="")


def _leases(seen: Snapshot) -> Iterator[tuple[Lock, Contender]]:
    """Yield the leases among the locks that were found; there may be others of the same key."""
    for lock in seen.locks:
        if lock.kind == "lease":
            yield from ((lock, one) for one in lock.holders)


def _facts(lock: Lock, one: Contender, names: Collection[str]) -> dict[str, Any]:
    """Return the facts of a lease."""
    holder = one.participant
    expires = holder.expires if isinstance(holder, LeaseHolder) else None
    return {
        "task": _task_of(lock.key, names),
        "id": holder.owner_id,
        "until": expires.isoformat(timespec="seconds") if expires else None,
        "key": clipped(lock.key),
    }
