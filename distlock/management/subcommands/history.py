"""`manage.py distlock history KEY`: lists what has happened to a lock."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.timezone import now

from distlock.conf import configuration
from distlock.keys.templates import znode_name
from distlock.management import output
from distlock.models import LockEvent

HELP = "List what has happened to a lock, the newest last. It needs the setting HISTORY."
EXAMPLES = {
    "history stock:42": "all events that the database still has",
    "history stock:42 --since 2h --kind lost": "who lost it in the last two hours",
    "history stock:42 --since 1d -o json": "the last day, for a script",
}

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_HEADING = ("TIME", "EVENT", "WAITED", "HELD", "PROCESS", "WHO", "DETAILS")
_USUAL: Final = (LockEvent.Kind.HELD, LockEvent.Kind.BUSY)


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("key", help="the key of the lock")
    parser.add_argument(
        "--since", type=age, metavar="AGE", help="only what is younger, such as 90s, 15m, 2h or 1d"
    )
    parser.add_argument("--kind", choices=LockEvent.Kind.values, help="only events of this kind")
    output.add_alias(parser)
    parser.add_argument("-o", "--output", choices=["json"], help="json: for a script")
    parser.epilog = output.EPILOG


def age(text: str) -> timedelta:
    """Return the value of an option such as ``15m``."""
    try:
        return timedelta(**{_UNITS[text[-1:]]: float(text[:-1])})
    except (KeyError, ValueError, OverflowError):
        raise ArgumentTypeError(f"{text!a} is no age such as 90s, 15m, 2h or 1d") from None


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    key, using = options["key"], options["using"]
    with output.exit_statuses():
        name = LockEvent.place(znode_name(key))
        if not configuration(using).history:
            raise CommandError(
                f"DISTLOCK[{using!r}] keeps no history: set HISTORY.",
                returncode=output.MISCONFIGURED,
            )
        rows = LockEvent.objects.filter(using=using, name=name)
        if options["since"]:
            since = now() - options["since"]
            rows = rows.filter(at__gte=since)
        if options["kind"]:
            rows = rows.filter(kind=options["kind"])
        rows = rows.order_by("at", "id")
    if options["output"]:
        command.stdout.write(output.as_json(list(rows.values())))
    elif events := list(rows):
        head, *lines = output.table([_HEADING, *map(_row, events)])
        command.stdout.write(command.style.MIGRATE_HEADING(head))
        for event, line in zip(events, lines, strict=True):
            paint = str if event.kind in _USUAL else command.style.ERROR
            command.stdout.write(paint(line))
    else:
        raise CommandError(f"Nothing was kept of {key!a}.", returncode=output.NOTHING)


def _row(event: LockEvent) -> tuple[object, ...]:
    return (
        event.moment,
        event.kind,
        *("" if one is None else output.duration(one) for one in (event.waited, event.held_for)),
        f"{event.hostname}:{event.pid}",
        event.owner,
        event.detail,
    )
