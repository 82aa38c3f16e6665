"""`manage.py distlock sweep`: removes leases that have ended, and tickets of lost tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.celery.tickets import sweep_tickets
from distlock.exceptions import LockUnavailable
from distlock.lease.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Callable

HELP = (
    "Remove persistent locks (zk_lease), and places in line of lost tasks, that have expired, by "
    "ZooKeeper's clock."
)

#: Exit statuses, beside 0 (done) and Django's own 1 (could not) and 2 (wrong usage).
UNREADABLE = 3
INTERRUPTED = 130

_SECONDS_BETWEEN_LINES = 2.0


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--using", default="default", help='the alias in DISTLOCK (default "default")'
    )


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    try:
        swept = sweep(options["using"], progress=_progress(command))
        tickets = sweep_tickets(options["using"])
    except KeyboardInterrupt:
        raise CommandError("Interrupted; run it again.", returncode=INTERRUPTED) from None
    except (LockUnavailable, ImproperlyConfigured) as error:
        raise CommandError(str(error)) from error
    command.stdout.write(f"Removed {swept.removed} expired leases; {swept.live} are live.")
    if tickets:
        command.stdout.write(f"Removed {tickets} tickets of tasks that did not come again.")
    if swept.unreadable:
        listed = "\n".join(f"  {path}" for path in swept.unreadable)
        raise CommandError(
            "These nodes do not have the data of a lease, and were kept. While they exist, nobody "
            f"gets their lease: find out who wrote them, and delete them by hand.\n{listed}",
            returncode=UNREADABLE,
        )


def _progress(command: BaseCommand) -> Callable[[int, int], None]:
    """Return a function that reports progress now and then, if the work takes long."""
    said_at = time.monotonic()

    def report(looked_at: int, of: int) -> None:
        nonlocal said_at
        if looked_at < of and time.monotonic() - said_at >= _SECONDS_BETWEEN_LINES:
            said_at = time.monotonic()
            command.stderr.write(f"{looked_at} of {of} leases looked at")

    return report
