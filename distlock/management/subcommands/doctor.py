"""`manage.py distlock doctor`: finds what keeps locks from working on this machine."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.management.diagnosis import diagnose
from distlock.management.output import NOTHING, UNAVAILABLE, add_options, exit_statuses, write_json
from distlock.text import printable

if TYPE_CHECKING:
    from distlock.management.finding import Finding

HELP = "Look at settings, servers, session, clock and permissions, and say what to do."

_MARGIN = " " * 9


def add_arguments(parser: CommandParser) -> None:
    add_options(parser)
    parser.epilog = (
        "Exit status: 0 when locks work, with warnings or without; 1 when something keeps them "
        "from working, such as no server that can be reached; 69 when the servers grant no session."
    )


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    found: list[Finding] = []
    with exit_statuses():
        for finding in diagnose(options["using"], timeout=options["budget"]):
            found.append(finding)
            if not options["json"]:
                command.stdout.write(_as_text(finding, command))
                command.stdout.flush()
    if options["json"]:
        write_json(command, [finding._asdict() for finding in found])
    errors = [finding for finding in found if finding.level == "error"]
    if errors:
        status = UNAVAILABLE if any(one.subject == "session" for one in errors) else NOTHING
        subjects = ", ".join(finding.subject for finding in errors)
        raise CommandError(f"Locks do not work here: {subjects}.", returncode=status)


def _as_text(finding: Finding, command: BaseCommand) -> str:
    width = max(shutil.get_terminal_size().columns, 60)
    line = printable(f"{finding.level:9}{finding.subject}: {finding.message}")
    lines = textwrap.wrap(line, width, subsequent_indent=_MARGIN)
    if finding.advice:
        advice = printable(f"{_MARGIN}{finding.advice}")
        lines += textwrap.wrap(advice, width, subsequent_indent=_MARGIN)
    styles = {"ok": command.style.SUCCESS, "warning": command.style.WARNING}
    return styles.get(finding.level, command.style.ERROR)("\n".join(lines))
