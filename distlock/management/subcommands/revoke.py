"""`manage.py distlock revoke KEY`: asks a holder, or a waiter, to leave."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.management.acting import act, add_record, add_target, targets, write_outcomes
from distlock.management.output import NOTHING, add_options, exit_statuses

HELP = "Ask the holder of a lock to leave; what it does then is up to its on_revoke."


def add_arguments(parser: CommandParser) -> None:
    add_target(parser)
    add_record(parser)
    add_options(parser)


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    with exit_statuses():
        asked = act("revoke", targets(options), options)
    no = "Not asked, for it has left or is a lease"
    write_outcomes(command, "revoke", asked, as_json=options["json"], no=no)
    if not any(one["asked"] for one in asked):
        raise CommandError("Nobody was asked.", returncode=NOTHING)
