"""`manage.py distlock why KEY`: says in words what holds a lock up."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.inspection.tree import look, snapshot
from distlock.inspection.wait_graph import confirmed
from distlock.keys.templates import znode_name
from distlock.locks.explanation import explain
from distlock.management import output
from distlock.models import LockEvent

HELP = "Say who holds a lock, since when and doing what, who waits, and whether it is a deadlock."
EXAMPLES = {
    "why stock:42": "who holds it, who waits, and whether that will end",
    "why stock:42 --using inventory": "another alias in DISTLOCK",
    "why nightly --budget 60": "with a minute to read a large tree",
}


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("key", help="the key of the lock, or its name as `list -o json` tells it")
    output.add_options(parser)


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    key, using, budget = options["key"], options["using"], options["budget"]
    with output.exit_statuses():
        found = look(key, using, budget=budget).locks
        name = found[0].name if found else znode_name(key)
        lost = LockEvent.last_loss(using, LockEvent.place(name))
        if not found:
            nothing = [f"Nobody holds or waits for {key!a}.", lost]
            raise CommandError(" ".join(filter(None, nothing)), returncode=output.NOTHING)
        seen = snapshot(using, depth=None, budget=budget)
        cycles = confirmed(seen, budget)
    for lock in found:
        said = explain(lock, seen.locks, cycles)
        command.stdout.write(command.style.ERROR(said.text) if said.deadlock else said.text)
    if lost:
        command.stdout.write(command.style.ERROR(lost))
    if seen.cut:
        command.stderr.write(
            "The time was up, and not all locks were read: there may be a deadlock. Give it more "
            "with --budget."
        )
