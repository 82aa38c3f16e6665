"""`manage.py distlock top`: shows where is waited longest, live."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils.timezone import localtime

from distlock.management import output

from . import list as list_

HELP = "Show the locks with the longest waits, and deadlocks; on a terminal, again and again."
EXAMPLES = {
    "top": "where somebody waits now, until Ctrl-C",
    "top stock:": "only locks whose keys begin with stock:",
    "top --once | head": "one look, for a pipe or a report",
}


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("prefix", nargs="?", default="", help="only keys that begin with this")
    parser.add_argument("--once", action="store_true", help="look once, as in a pipe")
    output.add_options(parser)


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    options |= {"sort": "wait", "deadlocks": True}
    with output.exit_statuses():
        output.watch(command, partial(_look, command, options), again=not options["once"])


def _look(command: BaseCommand, options: dict[str, Any]) -> output.Shown:
    seen, locks, found = list_.read(options)
    waiting = sum(lock.waiting for lock in locks)
    longest = output.duration(max((lock.longest_wait for lock in locks), default=0))
    noun = "lock" if len(locks) == 1 else "locks"
    summary = f"{localtime(seen.taken_at):%H:%M:%S}  {len(locks)} {noun}, {waiting} waiting"
    if waiting:
        summary += f", the longest for {longest}"
    if tasks := sum(lock.tasks for lock in locks):
        summary += f". Celery tasks that wait for their turn: {tasks}"
    deadlocks = f"Deadlocks: {len(found)}." if found else "No deadlock."
    table, stuck = list_.lines(command, locks, found)
    # The screen may end before the last lock does.
    return [f"{summary}. {deadlocks}", *stuck, *table], list(list_.notes(seen))
