"""`manage.py distlock show KEY`: shows the holders of a lock, and its waiters in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.inspection.state import Contender, Lock
from distlock.inspection.tree import look
from distlock.management import output

HELP = "Show who holds a lock, and who waits for it in which order."
EXAMPLES = {
    "show stock:42": "all holders and waiters, in order",
    "show stock:42 -o json": "the same for a script, with session ids",
    "show stock:42 --using inventory": "another alias in DISTLOCK",
}

HEADING = ("", "FOR", "MODE", "TOKEN", "WHO", "NODE")


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("key", help="the key of the lock, or its name as `list -o json` tells it")
    output.add_options(parser, "json")


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    with output.exit_statuses():
        seen = look(options["key"], options["using"], budget=options["budget"])
    if options["output"]:
        command.stdout.write(output.as_json(output.facts(seen)))
    else:
        for lock in seen.locks:
            command.stdout.write("\n".join([*_lines(lock), ""]))
    if seen.cut:
        command.stderr.write("The time was up, and not all was read. Give it more with --budget.")
    if not seen.locks:
        nothing = f"Nobody holds or waits for {options['key']!a} in {seen.namespace}."
        raise CommandError(nothing, returncode=output.NOTHING)


def _lines(lock: Lock) -> Iterator[str]:
    of = f" of {lock.limit}" if lock.limit is not None else ""
    tasks = f", and Celery tasks that wait for their turn: {lock.tasks}" if lock.tasks else ""
    yield f"{lock}: {lock.kind}, {lock.holding}{of} held, {lock.waiting} waiting{tasks}"
    if lock.limit_is_set:
        yield "The limit was set at run time, in place of that of the code."
    if not lock.readable:
        yield "The ACL does not let us read who is there."
    if lock.foreign:
        yield f"Beside it are nodes of others, which do not exclude us: {', '.join(lock.foreign)}"
    if lock.contenders:
        yield from output.table([HEADING, *map(_row, lock.contenders)])
    more = lock.holding + lock.waiting - len(lock.contenders)
    if more > 0:
        yield f"and {more} more"


def _row(one: Contender) -> tuple[object, ...]:
    who = one.participant
    return (
        "holds" if one.holds else "waits",
        output.lasted(one),
        one.mode,
        who.token or "?",
        one,
        who.path.rpartition("/")[2],
    )
