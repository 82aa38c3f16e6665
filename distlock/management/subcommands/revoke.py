"""`manage.py distlock revoke KEY`: asks a holder, or a waiter, to leave."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from distlock.management.acting import act, add_arguments, targets
from distlock.management.output import NOTHING, exit_statuses

__all__ = ["HELP", "add_arguments", "handle"]

HELP = "Ask the holder of a lock to leave; what it does then is up to its on_revoke."


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    words = "Asked", "Not asked, for it has left or is a lease"
    with exit_statuses():
        asked = act(command, "revoke", targets(options), options, words)
    if not any(asked):
        raise CommandError("Nobody was asked.", returncode=NOTHING)
