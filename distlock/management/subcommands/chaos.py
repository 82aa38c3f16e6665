"""`manage.py distlock chaos`: faults aimed at the holders of locks, and a verdict."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.management.subcommands.server import _ended_by_signals
from distlock.testing.server import ServerError

if TYPE_CHECKING:
    from distlock.testing.chaos.checker import Violation

HELP = "Break servers, links and processes while locks are held, and check what came of it."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="for how long processes work (default 120)"
    )
    parser.add_argument(
        "--processes", type=int, default=8, help="number of worker processes (default 8)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="decides the schedule of the faults (default 1)"
    )
    parser.add_argument(
        "--nodes", type=int, default=1, help="number of servers: 1 (default), 3 or 5"
    )
    parser.add_argument(
        "--recipe",
        choices=["distlock", "kazoo"],
        default="distlock",
        help="the lock under test: distlock's (default), or kazoo's own Lock to compare with",
    )
    parser.add_argument("--history", help="write what happened to this file, as JSON lines")


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    # Imported late: it needs kazoo's recipes, which nothing else does.
    from distlock.testing.chaos import harness, history, report  # noqa: PLC0415
    from distlock.testing.chaos.checker import check  # noqa: PLC0415
    from distlock.testing.chaos.timeline import Timeline  # noqa: PLC0415

    size = harness.Options(
        seconds=options["seconds"],
        processes=options["processes"],
        seed=options["seed"],
        nodes=options["nodes"],
        recipe=options["recipe"],
    )
    try:
        with _ended_by_signals():
            events = harness.run(size, command.stderr.write)
    except KeyboardInterrupt:
        raise CommandError("Interrupted; nothing was checked.", returncode=130) from None
    except (ServerError, ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    if options["history"]:
        history.write(Path(options["history"]), events)
    timeline = Timeline(events)
    violations = check(timeline)
    command.stdout.write(report.summary(timeline, violations))
    if violations:
        raise CommandError(_listed(violations))
    if not timeline.holds:
        raise CommandError("Nobody ever got a lock, so nothing was shown.")


def _listed(violations: list[Violation], of_each: int = 5) -> str:
    lines = ["Violations:"]
    for gate, count in Counter(violation.gate for violation in violations).items():
        first = [violation for violation in violations if violation.gate == gate][:of_each]
        lines += [f"{at:9.3f} s  {name}: {text}" for name, at, text in first]
        if count > of_each:
            lines.append(f"             {gate}: and {count - of_each} more")
    return "\n".join(lines)
