"""`manage.py tangle`: one of the processes of the deadlock of `serve_demo --deadlock`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from example_project.shop.tangle import NAMES, transfer


class Command(BaseCommand):
    help = "Take part in a deadlock of three processes, again and again, until it is ended."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "number", type=int, choices=range(len(NAMES)), help="which of the three"
        )

    def handle(self, *_: Any, number: int, **__: Any) -> None:
        transfer(number)
