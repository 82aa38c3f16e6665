"""Finds the targets of the subcommands `revoke` and `break`, records and reports what they do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.management import get_system_username
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from distlock import process
from distlock.inspection.tree import look
from distlock.locks.actions import Target
from distlock.logs.audit import carry_out
from distlock.text import printable

from .output import NOTHING, USAGE, contender_as_json, table, write_json

if TYPE_CHECKING:
    from distlock.inspection.state import Contender, Lock
    from distlock.logs.audit import Action

_DONE: Final = {"revoke": "asked", "break": "broken"}


def add_target(parser: CommandParser) -> None:
    """Add the arguments that select the target."""
    parser.add_argument("key", help="the key of the lock")
    parser.add_argument(
        "--node",
        metavar="NAME",
        help="whom, holder or waiter: a node's name or path, as `show` tells it",
    )
    parser.add_argument("--all", action="store_true", help="all who hold it")


def add_record(parser: CommandParser) -> None:
    """Add the arguments for the record of the action."""
    parser.add_argument("--reason", default="", help="why, for the log")
    parser.add_argument(
        "--user", metavar="NAME", help="your Django user, for an entry in the admin's log"
    )


def act(
    action: Action, found: list[tuple[Lock, Contender]], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Ask participants to release, or break their locks, on the record; return the outcomes.

    :raises CommandError: the record cannot be written
    """
    operator = f"{get_system_username() or os.getuid()}@{process.this.host}"
    reason = printable(options["reason"])
    try:
        user_id = _user_id(options["user"])
        return [
            {
                "key": lock.key,
                _DONE[action]: carry_out(
                    action,
                    Target.of(options["using"], lock, one),
                    operator=operator,
                    user_id=user_id,
                    reason=reason,
                ),
                **contender_as_json(one),
            }
            for lock, one in found
        ]
    except DatabaseError as error:
        raise CommandError(f"The record cannot be written, so nothing was done: {error}") from error


def write_outcomes(
    command: BaseCommand, action: Action, outcomes: list[dict[str, Any]], *, as_json: bool, no: str
) -> None:
    """Write one line for each outcome, or all as JSON.

    :param no: the line's beginning where nothing was done
    """
    if as_json:
        write_json(command, outcomes)
        return
    done = _DONE[action]
    for one in outcomes:
        begin = done.capitalize() if one[done] else no
        command.stdout.write(f"{begin}: {one['who']} on {printable(one['node'])}")


def _user_id(name: str | None) -> Any:
    """Return the id of the Django user of this name, None without a name.

    :raises CommandError: there is no such user, or no admin to keep the record
    """
    if name is None:
        return None
    if not apps.is_installed("django.contrib.admin"):
        raise CommandError(
            "--user writes to the log of Django's admin, which is not in INSTALLED_APPS.",
            returncode=USAGE,
        )
    users = get_user_model()
    try:
        return users.objects.get_by_natural_key(name).pk
    except users.DoesNotExist:
        raise CommandError(f"There is no Django user {name!a}.", returncode=USAGE) from None


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
