"""`manage.py distlock break KEY`: takes the lock away from a holder, or ends a wait."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.contrib.auth.management import get_system_username
from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock import process
from distlock.inspection.state import Contender, Lock
from distlock.inspection.tree import look
from distlock.locks.actions import Action, Target, carry_out
from distlock.management.output import NOTHING, USAGE, add_options, exit_statuses, lasted, table
from distlock.text import printable

HELP = "Delete the node of a lock's holder. Its code learns of it, but goes on: rather try revoke."
EXAMPLES = {
    "break stock:42": "show the holder, and ask first",
    "break stock:42 -y --reason 'ticket 815'": "without a question, with a reason for the log",
    "break stock:42 --node _c_5d…-lock-0000000017": "of several, this one",
}


def add_arguments(parser: CommandParser) -> None:
    add_targets(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def add_targets(parser: CommandParser) -> None:
    parser.add_argument("key", help="the key of the lock")
    parser.add_argument(
        "--node",
        metavar="NAME",
        help="which holder or waiter: the name or path of its node, as `show` has it",
    )
    parser.add_argument("--all", action="store_true", help="all who hold it")
    parser.add_argument("--reason", default="", help="why, for the log")
    add_options(parser)


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    words = "Broken", "Not broken, for it has gone meanwhile"
    if not all(act(command, "break", options, words)):
        raise CommandError("Not all of it was done.", returncode=NOTHING)


def act(
    command: BaseCommand, action: Action, options: dict[str, Any], words: tuple[str, str]
) -> list[bool]:
    """Ask the targets to release, or break their locks; return whether it was done, for each."""
    reason = printable(options["reason"])
    outcomes = []
    with exit_statuses():
        targets = _targets(options)
        if not options.get("yes", True):  # `revoke` does not ask
            _ask(command, targets)
        for lock, one in targets:
            target = Target.of(options["using"], lock, one)
            done = carry_out(action, target, operator=operator(), reason=reason)
            begin = words[0] if done else words[1]
            command.stdout.write(f"{begin}: {one} on {printable(one.participant.path)}")
            outcomes.append(done)
    return outcomes


def operator() -> str:
    """Return who runs the command, for the log."""
    return f"{get_system_username() or os.getuid()}@{process.this.host}"


def _targets(options: dict[str, Any]) -> list[tuple[Lock, Contender]]:
    """Return the one node that was named, or the holders."""
    seen = look(options["key"], options["using"], depth=None, budget=options["budget"])
    node = options["node"]
    found = [
        (lock, one)
        for lock in seen.locks
        for one in (lock.contenders if node else lock.holders)
        if not node or node in (one.participant.path, one.participant.path.rpartition("/")[2])
    ]
    if not found:
        meant = f"on the node {node!a}" if node else "holding it"
        raise CommandError(
            f"Nobody is there {meant}: {options['key']!a}. `distlock show` tells who is.",
            returncode=NOTHING,
        )
    if len(found) > 1 and not options["all"]:
        nodes = "\n".join(table((lock, one.participant.path, one) for lock, one in found))
        raise CommandError(
            f"{len(found)} are meant. Name one with --node, or all with --all:\n{nodes}",
            returncode=USAGE,
        )
    return found


def _ask(command: BaseCommand, targets: list[tuple[Lock, Contender]]) -> None:
    if not sys.stdin.isatty():
        raise CommandError(
            "There is no terminal to ask at. Say -y if you are sure.", returncode=USAGE
        )
    for lock, one in targets:
        state = "holds" if one.holds else "waits for"
        since = lasted(one)
        path = printable(one.participant.path)
        command.stderr.write(f"{one} {state} {str(lock)!r} ({since}), on {path}")
    command.stderr.write("Its code goes on, and others get the lock. Break it? [y/N] ", ending="")
    command.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("Nothing was done.", returncode=NOTHING)
