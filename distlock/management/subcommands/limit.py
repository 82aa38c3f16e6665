"""`manage.py distlock limit KEY N`: sets the limit of a semaphore for all of its users."""

from __future__ import annotations

from argparse import ArgumentTypeError
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from distlock.inspection.tree import look
from distlock.keys.templates import znode_name
from distlock.locks.actions import NewLimit, carry_out
from distlock.management.output import add_alias, exit_statuses
from distlock.queue.semaphore import whole
from distlock.text import printable

from .break_ import operator

HELP = "Set how many may hold a semaphore, in place of the limit in the code, until --unset."
EXAMPLES = {
    "limit customer:42 1": "one at a time, from now on",
    "limit customer:42 1 --reason 'ticket 815'": "with a reason for the log",
    "limit customer:42 --unset": "as many as the code says",
}


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("key", help="the key of the zk_semaphore, or of zk_limited")
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("limit", nargs="?", type=permits, help="the number of permits")
    limit.add_argument("--unset", action="store_true", help="the limit in the code counts again")
    parser.add_argument("--reason", default="", help="why, for the log")
    add_alias(parser)


def permits(text: str) -> int:
    """Return the value of an argument that is a number of permits."""
    with suppress(ValueError):
        return whole(int(text), "The limit")
    raise ArgumentTypeError(f"{text!r} is no number of permits from 1 up")


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    key, using = options["key"], options["using"]
    with exit_statuses():
        kinds = {lock.kind for lock in look(key, using, depth=1).locks}
        target = NewLimit(using=using, key=key, name=znode_name(key), limit=options["limit"])
        carry_out("limit", target, operator=operator(), reason=printable(options["reason"]))
    command.stdout.write(f"The limit of {printable(key)} is now {target}.")
    if kinds and "semaphore" not in kinds and not options["unset"]:
        command.stderr.write(
            f"Only a lock without a limit uses it now: {', '.join(sorted(kinds))}. If the key is a "
            "mistake, repeat the command with --unset in place of the limit."
        )
