"""`manage.py distlock <subcommand>`; each subcommand is a module of `..subcommands`."""

from __future__ import annotations

from argparse import SUPPRESS
from importlib import import_module
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandParser

from distlock.management.subcommands import break_, doctor, revoke, run, server, show, sweep
from distlock.management.subcommands import list as list_

#: Each has a HELP, `add_arguments` and `handle`.
SUBCOMMANDS: dict[str, Any] = {
    "break": break_,
    "doctor": doctor,
    "list": list_,
    "revoke": revoke,
    "run": run,
    "server": server,
    "show": show,
    "sweep": sweep,
}


def subcommands() -> dict[str, Any]:
    """Return those of this app, and with the app `distlock_chaos` that of its own."""
    if not apps.is_installed("distlock_chaos"):
        return SUBCOMMANDS
    return dict(sorted({**SUBCOMMANDS, "chaos": import_module("distlock_chaos.command")}.items()))


class Command(BaseCommand):
    help = "Distributed locks: run a server, look at the locks, act on them."
    # An operator needs these commands most when the settings are wrong.
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        self._django_options = CommandParser(add_help=False)
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_base_argument(self, parser: CommandParser, *args: Any, **kwargs: Any) -> None:
        """Accept an option of Django's before the subcommand, and after it."""
        super().add_base_argument(parser, *args, **kwargs)
        # A default there would replace the value that was given before the subcommand.
        self._django_options.add_argument(*args, **{**kwargs, "default": SUPPRESS})

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="subcommand")
        for name, subcommand in subcommands().items():
            subcommand.add_arguments(
                subparsers.add_parser(
                    name,
                    help=subcommand.HELP,
                    description=subcommand.HELP,
                    parents=[self._django_options],
                    formatter_class=parser.formatter_class,
                )
            )

    def handle(self, *_: Any, subcommand: str, **options: Any) -> None:
        subcommands()[subcommand].handle(self, options)
