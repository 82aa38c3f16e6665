"""`manage.py distlock chaos`: faults aimed at the holders of locks, and a verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.management.interrupts import ended_by_signals
from distlock_chaos.server import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock_chaos.analysis.checker import Violation
    from distlock_chaos.history import Event

HELP = (
    "Break servers, links and processes while locks are held, and check the result. It starts its "
    "own ZooKeeper servers and worker processes on loopback, which needs an installed ZooKeeper "
    "and Java, or with --engine redis a Redis server, and does not touch the servers of the site."
)
EXAMPLES = {
    "chaos": "two minutes on an ensemble of three",
    "chaos --seconds 600 --seed 42": "ten minutes, in an order that can be repeated",
    "chaos --engine redis": "the same on a Redis",
}


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="for how long processes work (default 120)"
    )
    parser.add_argument(
        "--processes", type=int, default=8, help="number of worker processes (default 8)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        action="append",
        help="decides the schedule of the faults (default 1); give it again for another run",
    )
    parser.add_argument(
        "--nodes", type=int, default=1, help="number of servers: 1 (default), 3 or 5"
    )
    parser.add_argument(
        "--engine",
        choices=["zookeeper", "redis"],
        default="zookeeper",
        help="the servers: ZooKeeper (default), or Redis, with --nodes a primary and its replicas",
    )
    parser.add_argument(
        "--volatile", action="store_true", help="the Redis server keeps nothing on disk"
    )
    parser.add_argument(
        "--recipe",
        choices=["distlock", "rwlock", "semaphore", "multilock", "lease", "kazoo"],
        default="distlock",
        help="the lock under test: distlock's mutex (default) or another of its locks, "
        "or kazoo's own Lock to compare with",
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="NAME",
        help="only this fault, such as 'leader pause'; give it again for more (default: all)",
    )
    parser.add_argument(
        "--session-timeout",
        type=float,
        default=4.0,
        metavar="SECONDS",
        help="of the workers' sessions (default 4)",
    )
    parser.add_argument(
        "--tick",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="the servers' tickTime (default 1); a session timeout has 2 to 20 of them",
    )
    parser.add_argument(
        "--strict", action="store_true", help="heartbeats are writes: the setting STRICT"
    )
    parser.add_argument(
        "--history",
        type=Path,
        metavar="FILE",
        help="write what happened to this file, as JSON lines",
    )
    parser.add_argument(
        "--edn", type=Path, metavar="FILE", help="write the history as Jepsen's EDN, too"
    )
    parser.add_argument(
        "--check",
        type=Path,
        metavar="FILE",
        help="run nothing: check a history that --history has written",
    )


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    if options["check"] and options["history"]:
        raise CommandError("--check reads a history and --history writes one: give one of them.")
    if options["engine"] == "redis" and find_spec("hiredis") is None:
        raise CommandError(
            "--engine redis needs redis-py with hiredis: install django-distlock-chaos[redis]."
        )
    failures = [_verdict(command, events) for events in _histories(command, options)]
    if failures := list(filter(None, failures)):
        raise CommandError("\n".join(failures))


def _histories(command: BaseCommand, options: dict[str, Any]) -> Iterator[list[Event]]:
    """Yield the history of each run, or the one that is to be checked, and write it as asked."""
    # Imported late: it needs kazoo's recipes, which nothing else does.
    from distlock_chaos import harness, history  # noqa: PLC0415
    from distlock_chaos.analysis import edn  # noqa: PLC0415

    seeds = options["seed"] or [1]
    several = len(seeds) > 1 and not options["check"]
    names = {field.name for field in fields(harness.Options)} - {"seed", "only"}
    size = {name: options[name] for name in names if name in options}
    try:
        for seed in seeds:
            if options["check"]:
                events = history.read(options["check"])
            else:
                run = harness.Options(**size, seed=seed, only=tuple(options["fault"]))
                with ended_by_signals():
                    events = harness.run(run, command.stderr.write)
            for name, write in (("history", history.write), ("edn", edn.write)):
                if path := options[name]:
                    write(path.with_stem(f"{path.stem}-{seed}") if several else path, events)
            yield events
            if options["check"]:
                return
    except KeyboardInterrupt:
        raise CommandError("Interrupted; nothing was checked.", returncode=130) from None
    except (ServerError, ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _verdict(command: BaseCommand, events: list[Event]) -> str:
    """Print the summary of a run, and return what is wrong with it."""
    from distlock_chaos.analysis import report  # noqa: PLC0415 - as above
    from distlock_chaos.analysis.checker import check  # noqa: PLC0415
    from distlock_chaos.analysis.timeline import Timeline  # noqa: PLC0415

    timeline = Timeline(events)
    violations = check(timeline)
    command.stdout.write(report.summary(timeline, violations))
    if violations:
        return _listed(violations)
    return "" if timeline.holds else "Nobody ever got a lock, so nothing was shown."


def _listed(violations: list[Violation], of_each: int = 5) -> str:
    lines = ["Violations:"]
    for gate, count in Counter(violation.gate for violation in violations).items():
        first = [violation for violation in violations if violation.gate == gate][:of_each]
        lines += [f"{at:9.3f} s  {name}: {text}" for name, at, text in first]
        if count > of_each:
            lines.append(f"             {gate}: and {count - of_each} more")
    return "\n".join(lines)
