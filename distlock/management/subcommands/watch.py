"""`manage.py distlock watch`: shows the locks with waiters, repeatedly, until Ctrl-C."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from distlock.exceptions import LockUnavailable
from distlock.inspection.tree import snapshot
from distlock.management.output import add_options, exit_statuses, lock_as_json, seconds, table
from distlock.management.subcommands.list import HEADING, ORDERS, remarks, row
from distlock.management.subcommands.server import _ended_by_signals

if TYPE_CHECKING:
    from django.core.management.base import BaseCommand, CommandParser

    from distlock.inspection.state import Lock, Snapshot

HELP = "Watch the locks that others wait for, or all of them, until Ctrl-C."

#: Moves to the first line; erases the rest of the screen; erases the rest of the line.
_HOME, _REST_OF_SCREEN, _REST_OF_LINE = "\x1b[H", "\x1b[J", "\x1b[K"


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("prefix", nargs="?", default="", help="only keys that begin with this")
    parser.add_argument("--every", action="store_true", help="also locks that nobody waits for")
    parser.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help="time between looks (default 1)",
    )
    parser.add_argument(
        "--sort", choices=ORDERS, default="wait", help="by key, waiters, wait (default) or age"
    )
    parser.add_argument(
        "--count", type=int, default=0, metavar="N", help="end after N looks (default: never)"
    )
    add_options(parser)
    parser.epilog = "Exit status: 0, also after Ctrl-C; 2 for wrong usage; 78 for wrong settings."


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    with exit_statuses(), suppress(KeyboardInterrupt), _ended_by_signals():
        for look in count(1):
            _look(command, options)
            if look == options["count"]:
                break
            time.sleep(options["interval"])


def _look(command: BaseCommand, options: dict[str, Any]) -> None:
    """Look once, and show the result. Go on without an answer: the server comes back."""
    prefix = normalize("NFC", options["prefix"])
    try:
        seen = snapshot(
            options["using"],
            select=lambda key: key.startswith(prefix),
            budget=options["budget"],
        )
    except LockUnavailable as error:
        if options["json"]:
            command.stdout.write(json.dumps({"error": str(error)}))
        else:
            _show(command, [str(error)])
        return
    locks = [lock for lock in seen.locks if lock.waiting or options["every"]]
    locks.sort(key=ORDERS[options["sort"]])
    if options["json"]:  # a line for each look
        facts = {"taken_at": seen.taken_at.isoformat(), "cut": seen.cut}
        command.stdout.write(json.dumps({**facts, "locks": [lock_as_json(one) for one in locks]}))
    else:
        _show(command, _lines(seen, locks))


def _lines(seen: Snapshot, locks: list[Lock]) -> list[str]:
    waiting = sum(lock.waiting for lock in seen.locks)
    summary = (
        f"{seen.taken_at:%H:%M:%S} UTC  {seen.namespace}: {len(seen.locks)} locks, "
        f"{waiting} waiting"
    )
    rows = table([HEADING, *map(row, locks)]).splitlines() if locks else []
    return [summary, *remarks(seen), *rows]


def _show(command: BaseCommand, lines: list[str]) -> None:
    """Redraw a terminal, as far as there is room; elsewhere write plain lines."""
    if not command.stdout.isatty():
        command.stdout.write("\n".join(lines))
        command.stdout.flush()
        return
    width, height = shutil.get_terminal_size()
    if len(lines) > height - 1:
        lines = [*lines[: height - 2], f"… and {len(lines) - height + 2} more"]
    drawn = "".join(f"{line[:width]}{_REST_OF_LINE}\n" for line in lines)
    command.stdout.write(f"{_HOME}{drawn}{_REST_OF_SCREEN}", ending="")
    command.stdout.flush()
