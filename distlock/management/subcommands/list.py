"""`manage.py distlock list`: lists all locks with holders or waiters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any
from unicodedata import normalize

from django.core.management.base import BaseCommand, CommandParser

from distlock.inspection.state import ORDERS, Lock, Snapshot, brief
from distlock.inspection.tree import snapshot
from distlock.inspection.wait_graph import Cycle, confirmed
from distlock.management import output

HELP = "List the locks that somebody holds or waits for, and the limits that were set."
EXAMPLES = {
    "list stock:": "the locks whose keys begin with stock:",
    "list --sort wait --watch": "the longest wait first, again and again",
    "list --deadlocks -o json": "all facts, and who waits in a circle, for a script",
}

_HEADING = ("KEY", "KIND", "HELD", "FOR", "WAIT", "LONGEST", "BY")
_WIDE = ("NEXT", "TOKEN", "NODE")


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("prefix", nargs="?", default="", help="only keys that begin with this")
    parser.add_argument(
        "--sort", choices=ORDERS, default="key", help="by key (default), waiters, wait or time held"
    )
    parser.add_argument(
        "--deadlocks", action="store_true", help="read all waiters, and show who waits in a circle"
    )
    output.add_options(parser, "wide", "json", watch=True)


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    with output.exit_statuses():
        if options["output"] == "json":
            command.stdout.write(_document(*read(options)))
        else:
            output.watch(command, partial(_look, command, options), again=options["watch"])


def read(options: dict[str, Any]) -> tuple[Snapshot, list[Lock], list[Cycle]]:
    """Return what was read, the locks in their order, and the deadlocks, if wanted."""
    prefix = normalize("NFC", options["prefix"])
    seen = snapshot(
        options["using"],
        select=lambda key: key.startswith(prefix),
        depth=None if options["deadlocks"] else 1,
        budget=options["budget"],
    )
    locks = sorted(seen.locks, key=ORDERS[options["sort"]])
    return seen, locks, confirmed(seen, options["budget"]) if options["deadlocks"] else []


def _document(seen: Snapshot, locks: list[Lock], found: list[Cycle]) -> str:
    circles = [
        [
            {
                "waiter": link.waiter.participant.path,
                "key": link.lock.key,
                "holder": link.holder.participant.path,
            }
            for link in cycle.links
        ]
        for cycle in found
    ]
    facts = output.facts(seen) | {"locks": [output.facts(lock) for lock in locks]}
    return output.as_json({**facts, "deadlocks": circles})


def _look(command: BaseCommand, options: dict[str, Any]) -> output.Shown:
    seen, locks, found = read(options)
    rows, stuck = lines(command, locks, found, wide=bool(options["output"]))
    return [*rows, *stuck], list(notes(seen))


def lines(
    command: BaseCommand, locks: Collection[Lock], found: list[Cycle], *, wide: bool = False
) -> tuple[list[str], list[str]]:
    """Return a table of the locks, and some lines for each deadlock."""
    if not locks:
        return [], []
    heading = _HEADING + _WIDE if wide else _HEADING
    head, *rows = output.table([heading, *(_row(lock)[: len(heading)] for lock in locks)])
    style = command.style
    stuck = {link.lock.name for cycle in found for link in cycle.links}

    def colour(lock: Lock) -> Callable[[str], str]:
        if lock.name in stuck:
            return style.ERROR
        return style.WARNING if lock.waiting or lock.tasks else str

    table = [
        style.MIGRATE_HEADING(head),
        *(colour(lock)(row) for lock, row in zip(locks, rows, strict=True)),
    ]
    return table, [style.ERROR(line) for cycle in found for line in _deadlock(cycle)]


def _deadlock(cycle: Cycle) -> Iterator[str]:
    """Yield a line for each owner, which a terminal has room for."""
    yield "Deadlock:"
    for last, link in zip((cycle.links[-1], *cycle.links), cycle.links, strict=False):
        yield f"  {brief(link.waiter)} holds {last.lock} and waits for {link.lock}"


def notes(seen: Snapshot) -> Iterator[str]:
    """Yield what a reader of the table has to know."""
    if not seen.locks:
        yield f"Nobody holds or waits for a lock in {seen.namespace}."
    if seen.cut:
        yield "The time was up, and not all was read. Give it more with --budget, or name a prefix."
    if seen.locks and not seen.exact:
        yield "The server's time is not known, so times are by the clock of this machine."


def _row(lock: Lock) -> tuple[object, ...]:
    held = lock.holding if lock.limit is None else f"{lock.holding}/{lock.limit}"
    holder, waiter = (next(iter(some), None) for some in (lock.holders, lock.waiters))
    first = str(brief(holder)) if holder else ""
    if not lock.readable:
        first = "(may not be read)"
    elif lock.foreign:
        first = f"{first} (beside nodes of others: {', '.join(lock.foreign)})".strip()
    wait = output.duration(lock.longest_wait) if lock.waiting else ""
    since = output.lasted(lock.holders[0]) if lock.holders else ""
    node = holder.participant.path.rpartition("/")[2] if holder else ""
    token = holder.participant.token if holder else ""
    waiting = f"{lock.waiting}+{lock.tasks}" if lock.tasks else lock.waiting
    return lock, lock.kind, held, since, waiting, wait, first, waiter or "", token, node
