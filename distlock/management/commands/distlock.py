"""`manage.py distlock <subcommand>`; each subcommand is a module of `..subcommands`."""

from __future__ import annotations

from argparse import SUPPRESS
from typing import Any, Protocol

from django.core.management.base import BaseCommand, CommandParser

from distlock.management.subcommands import (
    break_,
    chaos,
    doctor,
    once,
    revoke,
    run,
    server,
    set_acl,
    show,
    sweep,
    watch,
)
from distlock.management.subcommands import list as list_


class Subcommand(Protocol):
    """The functions of a module of `distlock.management.subcommands`."""

    HELP: str

    def add_arguments(self, parser: CommandParser) -> None: ...

    def handle(self, command: BaseCommand, options: dict[str, Any]) -> None: ...


SUBCOMMANDS: dict[str, Subcommand] = {
    "break": break_,
    "chaos": chaos,
    "doctor": doctor,
    "list": list_,
    "once": once,
    "revoke": revoke,
    "run": run,
    "server": server,
    "set-acl": set_acl,
    "show": show,
    "sweep": sweep,
    "watch": watch,
}


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
        for name, subcommand in SUBCOMMANDS.items():
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
        SUBCOMMANDS[subcommand].handle(self, options)
