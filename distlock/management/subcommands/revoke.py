"""`manage.py distlock revoke KEY`: asks a holder, or a waiter, to leave."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from distlock.management.output import NOTHING

from .break_ import act, add_targets

HELP = "Ask the holder of a lock to leave; what it does then is up to its on_revoke."
EXAMPLES = {
    "revoke stock:42": "ask the holder",
    "revoke stock:42 --all": "ask all who hold it, such as readers",
    "revoke stock:42 --node _c_5d…-lock-0000000017": "ask this holder or waiter",
}
add_arguments = add_targets


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    words = "Asked", "Not asked, for it has left or is a lease"
    if not any(act(command, "revoke", options, words)):
        raise CommandError("Nobody was asked.", returncode=NOTHING)
