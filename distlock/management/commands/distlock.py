"""`manage.py distlock <subcommand>`; each subcommand is a module of `..subcommands`."""

from __future__ import annotations

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

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="subcommand")
        for name, subcommand in SUBCOMMANDS.items():
            subcommand.add_arguments(
                subparsers.add_parser(name, help=subcommand.HELP, description=subcommand.HELP)
            )

    def handle(self, *_: Any, subcommand: str, **options: Any) -> None:
        SUBCOMMANDS[subcommand].handle(self, options)
