"""Finds the targets of the subcommands `revoke` and `break`, and acts on them, on the record."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from django.contrib.auth.management import get_system_username
from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock import process
from distlock.inspection.tree import look
from distlock.locks.actions import Target
from distlock.logs.audit import carry_out
from distlock.text import printable

from .output import NOTHING, USAGE, add_options, table

if TYPE_CHECKING:
    from distlock.inspection.state import Contender, Lock
    from distlock.locks.actions import Action


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("key", help="the key of the lock")
    parser.add_argument(
        "--node",
        metavar="NAME",
        help="whom, holder or waiter: a node's name or path, as `show` tells it",
    )
    parser.add_argument("--all", action="store_true", help="all who hold it")
    parser.add_argument("--reason", default="", help="why, for the log")
    add_options(parser, as_json=False)


def targets(options: dict[str, Any]) -> list[tuple[Lock, Contender]]:
    """Return the targets: the one node that was named, or the holder.

    :raises CommandError: there is no target, or more than one
    """
    seen = look(options["key"], options["using"], depth=None, budget=options["budget"])
    if options["node"]:
        found = [
            (lock, one)
            for lock in seen.locks
            for one in lock.contenders
            if options["node"] in (one.participant.path, one.participant.path.rpartition("/")[2])
        ]
    else:
        found = [(lock, one) for lock in seen.locks for one in lock.holders]
    if not found:
        meant = f"on the node {options['node']!a}" if options["node"] else "holding it"
        raise CommandError(
            f"Nobody is there {meant}: {options['key']!a}. `distlock show` tells who is.",
            returncode=NOTHING,
        )
    if len(found) > 1 and not options["all"]:
        nodes = table([(str(lock), one.participant.path, one) for lock, one in found])
        raise CommandError(
            f"{len(found)} are meant. Name one with --node, or all with --all:\n{nodes}",
            returncode=USAGE,
        )
    return found


def act(
    command: BaseCommand,
    action: Action,
    found: list[tuple[Lock, Contender]],
    options: dict[str, Any],
    words: tuple[str, str],
) -> list[bool]:
    """Ask participants to release, or break their locks, and write a line for each outcome.

    :param words: the line's beginning where it was done, and where not
    """
    operator = f"{get_system_username() or os.getuid()}@{process.this.host}"
    reason = printable(options["reason"])
    outcomes = []
    for lock, one in found:
        target = Target.of(options["using"], lock, one)
        done = carry_out(action, target, operator=operator, reason=reason)
        begin = words[0] if done else words[1]
        command.stdout.write(f"{begin}: {one} on {printable(one.participant.path)}")
        outcomes.append(done)
    return outcomes
