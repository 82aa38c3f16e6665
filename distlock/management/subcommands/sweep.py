"""`manage.py distlock sweep`: removes what is left of leases that have ended, and of lost tasks."""

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
        swept = sweep(options["using"], progress=_told_by(command))
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
            "These nodes say nothing of a lease and were left alone. While they are there, nobody "
            f"gets their lease: look who wrote them, and delete them by hand.\n{listed}",
            returncode=UNREADABLE,
        )


def _told_by(command: BaseCommand) -> Callable[[int, int], None]:
    """Say now and then how far the work has come, if it takes long."""
    said_at = time.monotonic()

    def tell(looked_at: int, of: int) -> None:
        nonlocal said_at
        if looked_at < of and time.monotonic() - said_at >= _SECONDS_BETWEEN_LINES:
            said_at = time.monotonic()
            command.stderr.write(f"{looked_at} of {of} leases looked at")

    return tell
