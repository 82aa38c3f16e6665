"""`manage.py distlock <subcommand>`; each subcommand is a module of `..subcommands`."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, RawDescriptionHelpFormatter
from importlib import import_module
from textwrap import fill
from typing import Any, Final

from django.apps import apps
from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    DjangoHelpFormatter,
)

from distlock.management.subcommands import (
    break_,
    doctor,
    history,
    limit,
    metrics,
    revoke,
    run,
    server,
    show,
    sweep,
    top,
    why,
)
from distlock.management.subcommands import list as list_

#: Each has a HELP, EXAMPLES, `add_arguments` and `handle`.
SUBCOMMANDS: dict[str, Any] = {
    "break": break_,
    "doctor": doctor,
    "history": history,
    "limit": limit,
    "list": list_,
    "metrics": metrics,
    "revoke": revoke,
    "run": run,
    "server": server,
    "show": show,
    "sweep": sweep,
    "top": top,
    "why": why,
}

#: The exit status of a program that a shell has seen end by SIGPIPE.
PIPE_CLOSED: Final = 141
DJANGO_OPTIONS: Final = "Django's own options, such as --settings and --no-color, work here, too."

CHAOS_IS_MISSING = (
    "This subcommand is in django-distlock-chaos: install it (docs/how-to/install.md), and add "
    '"distlock_chaos" to INSTALLED_APPS.'
)


def subcommands() -> dict[str, Any]:
    """Return those of this app, and with the app `distlock_chaos` that of its own."""
    if not apps.is_installed("distlock_chaos"):
        return SUBCOMMANDS
    return dict(sorted({**SUBCOMMANDS, "chaos": import_module("distlock_chaos.command")}.items()))


class _HelpFormatter(DjangoHelpFormatter, RawDescriptionHelpFormatter):
    """Keeps the lines of examples."""


class Command(BaseCommand):
    help = "Distributed locks: run a server, look at the locks, act on them."
    # An operator needs these commands most when the settings are wrong.
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        self._django_options = CommandParser(add_help=False)
        kwargs |= {"formatter_class": _HelpFormatter, "epilog": DJANGO_OPTIONS}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_base_argument(self, parser: CommandParser, *args: Any, **kwargs: Any) -> None:
        """Accept an option of Django's before the subcommand, and after it."""
        kwargs["help"] = SUPPRESS
        super().add_base_argument(parser, *args, **kwargs)
        # A default there would replace the value that was given before the subcommand.
        self._django_options.add_argument(*args, **{**kwargs, "default": SUPPRESS})

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="subcommand")
        for name, subcommand in subcommands().items():
            added = subparsers.add_parser(
                name,
                help=subcommand.HELP,
                description=fill(subcommand.HELP),
                parents=[self._django_options],
                formatter_class=parser.formatter_class,
            )
            subcommand.add_arguments(added)
            # No wider than a terminal, and to be copied with what they do.
            examples = [
                f"  # {does}\n  manage.py distlock {line}\n"
                for line, does in subcommand.EXAMPLES.items()
            ]
            status = [fill(added.epilog), ""] if added.epilog else []
            added.epilog = "\n".join(["examples:", *examples, *status, DJANGO_OPTIONS])
        if "chaos" not in subparsers.choices:
            # It takes any argument: whoever types an option, too, is told what to install.
            missing = subparsers.add_parser("chaos", prefix_chars="\0", add_help=False)
            missing.add_argument("arguments", nargs="*")

    def handle(self, *_: Any, subcommand: str, **options: Any) -> None:
        known = subcommands()
        if subcommand not in known:
            raise CommandError(CHAOS_IS_MISSING)
        try:
            known[subcommand].handle(self, options)
            self.stdout.flush()
        except BrokenPipeError:  # of `| head`; or Python would complain at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(PIPE_CLOSED)
