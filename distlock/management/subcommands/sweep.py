"""`manage.py distlock sweep`: removes leases that have ended, and tickets of lost tasks."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.celery.tickets import sweep_tickets
from distlock.lease import cool_downs
from distlock.lease.persistent import sweep
from distlock.management.output import add_alias, exit_statuses

HELP = (
    "Remove leases (zk_lease), tickets of lost tasks and what hold_at_least left, if they have "
    "expired by the server's clock."
)
EXAMPLES = {
    "sweep": "the alias default",
    "sweep --using inventory": "another alias in DISTLOCK",
    "run --lock sweep --timeout 0 -- manage.py distlock sweep": "from cron on all hosts, once",
}

#: The exit status beside those of all subcommands.
UNREADABLE = 3


def add_arguments(parser: CommandParser) -> None:
    add_alias(parser)


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    with exit_statuses():
        swept = sweep(options["using"])
        tickets = sweep_tickets(options["using"])
        ended = cool_downs.sweep(options["using"])
    command.stdout.write(f"Removed {swept.removed} expired leases; {swept.live} are live.")
    if tickets:
        command.stdout.write(f"Removed {tickets} tickets of tasks that did not come again.")
    if ended:
        command.stdout.write(f"Removed {ended} ends of hold_at_least that were over.")
    if swept.unreadable:
        listed = "\n".join(f"  {path}" for path in swept.unreadable)
        raise CommandError(
            "These nodes do not have the data of a lease, and were kept. While they exist, nobody "
            f"gets their lease: find out who wrote them, and delete them by hand.\n{listed}",
            returncode=UNREADABLE,
        )
