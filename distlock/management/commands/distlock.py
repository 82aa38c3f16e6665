"""`manage.py distlock <subcommand>`; each subcommand is a module of `..subcommands`."""

from __future__ import annotations

from argparse import SUPPRESS
from importlib import import_module
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.management.subcommands import break_, doctor, limit, revoke, run, server, show, sweep
from distlock.management.subcommands import list as list_

#: Each has a HELP, `add_arguments` and `handle`.
SUBCOMMANDS: dict[str, Any] = {
    "break": break_,
    "doctor": doctor,
    "limit": limit,
    "list": list_,
    "revoke": revoke,
    "run": run,
    "server": server,
    "show": show,
    "sweep": sweep,
}

CHAOS_IS_MISSING = (
    "This subcommand is in django-distlock-chaos: install it (docs/how-to/install.md), and add "
    '"distlock_chaos" to INSTALLED_APPS.'
)


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
        if "chaos" not in subparsers.choices:
            # It takes any argument: whoever types an option, too, is told what to install.
            missing = subparsers.add_parser("chaos", prefix_chars="\0", add_help=False)
            missing.add_argument("arguments", nargs="*")

    def handle(self, *_: Any, subcommand: str, **options: Any) -> None:
        known = subcommands()
        if subcommand not in known:
            raise CommandError(CHAOS_IS_MISSING)
        known[subcommand].handle(self, options)
