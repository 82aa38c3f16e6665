"""`manage.py distlock break KEY`: takes the lock away from a holder, or ends a wait."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.management import acting
from distlock.management.output import NOTHING, USAGE, duration, exit_statuses
from distlock.text import printable

if TYPE_CHECKING:
    from distlock.inspection.state import Contender, Lock

HELP = "Delete the node of a lock's holder. Its code learns of it, but goes on: rather try revoke."


def add_arguments(parser: CommandParser) -> None:
    acting.add_arguments(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    words = "Broken", "Not broken, for it has gone meanwhile"
    with exit_statuses():
        found = acting.targets(options)
        if not options["yes"]:
            _ask(command, found)
        broken = acting.act(command, "break", found, options, words)
    if not all(broken):
        raise CommandError("Not all of it was done.", returncode=NOTHING)


def _ask(command: BaseCommand, found: list[tuple[Lock, Contender]]) -> None:
    """Show the targets, and go on only after a yes."""
    if not sys.stdin.isatty():
        raise CommandError(
            "There is no terminal to ask at. Say -y if you are sure.", returncode=USAGE
        )
    for lock, one in found:
        state = "holds" if one.holds else "waits for"
        since = duration(one.seconds)
        path = printable(one.participant.path)
        command.stderr.write(f"{one} {state} {str(lock)!r} ({since}), on {path}")
    command.stderr.write("Its code goes on, and others get the lock. Break it? [y/N] ", ending="")
    command.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("Nothing was done.", returncode=NOTHING)
