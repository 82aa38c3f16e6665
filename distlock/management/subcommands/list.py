"""`manage.py distlock list`: lists all locks with holders or waiters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unicodedata import normalize

from django.core.management.base import BaseCommand, CommandParser

from distlock.inspection.state import ORDERS, Lock
from distlock.inspection.tree import snapshot
from distlock.inspection.wait_graph import cycles
from distlock.management import output

HELP = "List the locks that somebody holds or waits for, and the limits that were set."

HEADING = ("KEY", "KIND", "HELD", "FOR", "WAIT", "LONGEST", "BY")


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("prefix", nargs="?", default="", help="only keys that begin with this")
    parser.add_argument(
        "--sort", choices=ORDERS, default="key", help="by key (default), waiters, wait or age"
    )
    parser.add_argument(
        "--deadlocks", action="store_true", help="read all who wait, and tell who waits in a circle"
    )
    output.add_options(parser)


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    prefix = normalize("NFC", options["prefix"])
    with output.exit_statuses():
        seen = snapshot(
            options["using"],
            select=lambda key: key.startswith(prefix),
            depth=None if options["deadlocks"] else 1,
            budget=options["budget"],
        )
    locks = tuple(sorted(seen.locks, key=ORDERS[options["sort"]]))
    seen = replace(seen, locks=locks)
    found = cycles(locks) if options["deadlocks"] else []
    if options["json"]:
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
        output.write_json(command, {**output.facts(seen), "deadlocks": circles})
        return
    if locks:
        command.stdout.write(output.table([HEADING, *map(_row, locks)]))
    else:
        command.stderr.write(f"Nobody holds or waits for a lock in {seen.namespace}.")
    for cycle in found:
        command.stdout.write(f"Deadlock: {cycle}")
    if seen.cut:
        command.stderr.write(
            "The time was up, and not all was read. Give it more with --budget, or name a prefix."
        )
    if locks and not seen.exact:
        command.stderr.write(
            "The server's time is not known, so times are by the clock of this machine."
        )


def _row(lock: Lock) -> tuple[object, ...]:
    held = lock.holding if lock.limit is None else f"{lock.holding}/{lock.limit}"
    first = next((str(one) for one in lock.holders), "")
    if not lock.readable:
        first = "(may not be read)"
    elif lock.foreign:
        first = f"{first} (beside nodes of others: {', '.join(lock.foreign)})".strip()
    wait = output.duration(lock.longest_wait) if lock.waiting else ""
    age = output.duration(lock.age) if lock.holding else ""
    return (lock, lock.kind, held, age, lock.waiting, wait, first)
