"""Measure when the slot of a killed process is in use again, here and in libraries on PyPI.

python -m benchmarks.killed_slots [--kills 3] [--only redis huey] [--write]

A process takes one slot and keeps it. Another takes the others of the limit again and again, and
asks for one more. Then the first gets SIGKILL, and the time counts until all slots are in use.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from math import inf
from pathlib import Path

from benchmarks import pages
from benchmarks.celery_workers import ROOT, until
from benchmarks.contenders.slots import LIBRARIES
from distlock_chaos.guard import GuardedProcess
from distlock_chaos.redis_server import Redis
from distlock_chaos.server import ZooKeeper

PAGE = ROOT / "benchmarks" / "killed-slots.md"

#: How long the last slot is asked for in vain before the kill, in seconds.
SETTLE = 2.0
#: When a slot is given up after the kill, in seconds.
LONGEST = 90.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    with ZooKeeper() as zookeeper, Redis() as redis:
        hosts = {
            name: zookeeper.hosts if name.startswith("zookeeper") else redis.hosts
            for name in options.only
        }
        kills = []
        for number in range(1, options.kills + 1):
            sys.stderr.write(f"kill {number} of {options.kills}\n")
            kills.append(kill(hosts, f"kill-{number}"))
    text = table({name: [seconds[name] for seconds in kills] for name in hosts})
    sys.stdout.write(text)
    if options.write:
        pages.fill(PAGE, text)
    return 0


@dataclass
class Trial:
    """A slot that is held, and those who want it."""

    name: str
    holder: GuardedProcess
    log: Path
    killed_at: float = inf

    @property
    def seconds(self) -> float:
        """From the kill until all slots were in use; infinite if they were not yet."""
        limit = LIBRARIES[self.name].limit
        full = re.search(rf"^inside {limit} (.+)\n", self.log.read_text(), re.MULTILINE)
        return float(full[1]) - self.killed_at if full else inf


def kill(hosts: dict[str, str], key: str) -> dict[str, float]:
    """Kill a holder of each library at the same time; return the seconds, infinite if too many.

    :param hosts: where the server of each is
    """
    with tempfile.TemporaryDirectory(prefix="distlock-bench-") as folder, ExitStack() as stack:
        trials = []
        for name, server in hosts.items():
            held, used = Path(folder, f"{name}-held.log"), Path(folder, f"{name}.log")
            holder = stack.enter_context(_program(held, name, "hold", server, f"{name}-{key}"))
            _until_says(held, "holds")
            stack.enter_context(_program(used, name, "use", server, f"{name}-{key}"))
            trials.append(Trial(name, holder, used))
        for trial in trials:
            _until_says(trial.log, f"inside {LIBRARIES[trial.name].limit - 1} ")
        time.sleep(SETTLE)
        for trial in trials:
            trial.killed_at = time.monotonic()
            trial.holder.send(signal.SIGKILL)
        with suppress(TimeoutError):
            until(lambda: all(trial.seconds < inf for trial in trials), LONGEST)
        seconds = {trial.name: trial.seconds for trial in trials}
    if min(seconds.values()) < 0:
        raise RuntimeError(f"More than the limit were inside before the kill: {seconds}")
    return seconds


@contextmanager
def _program(log: Path, *arguments: str) -> Iterator[GuardedProcess]:
    command = [sys.executable, "-m", "benchmarks.contenders.slots", *arguments]
    process = GuardedProcess(command, output=log, cwd=ROOT)
    try:
        yield process
    finally:
        process.send(signal.SIGKILL)
        process.wait()


def _until_says(log: Path, words: str) -> None:
    try:
        until(lambda: words in log.read_text())
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{log.name}:\n{log.read_text()[-3000:]}") from error


def table(seconds: dict[str, list[float]]) -> str:
    """Return the figures in Markdown."""
    (kills,) = {len(times) for times in seconds.values()}
    conditions = (
        f"Medians of {kills} kills, on a machine with {os.cpu_count()} cores that had other work, "
        f"too. Python {platform.python_version()}."
    )
    lines = [
        conditions,
        "",
        "| library | limit | what ends a killed process's slot | in use again after | longest |",
        "|---|---:|---|---:|---:|",
    ]
    for name, times in seconds.items():
        library = LIBRARIES[name]
        release = f" ({version(library.package)})" if library.package else ""
        cells = [f"{library.name}{release}", str(library.limit), library.rule]
        cells += [_told(statistics.median(times)), _told(max(times))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _told(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < inf else f"not within {LONGEST:g} s"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.killed_slots", description=__doc__)
    parser.add_argument("--kills", type=int, default=3, help="of each library (3)")
    parser.add_argument("--only", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
