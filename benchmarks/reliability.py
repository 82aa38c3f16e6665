"""Bring about faults, and tabulate what Curator, kazoo's `Lock` and distlock do.

python -m benchmarks.reliability [--only FAULT ...] [--runs 3] [--write]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import kazoo

from benchmarks import curator, pages
from benchmarks.arena import ROOT, SESSION_TIMEOUT, Arena
from benchmarks.faults import (
    CALL,
    CAME,
    FAULTS,
    HEEDING,
    LEFT,
    OVERLAP,
    RECOVERY,
    SAYS,
    TOLD,
    Fault,
    Finding,
)

LIBRARIES = ("Curator", "kazoo", "distlock")
PAGE = ROOT / "benchmarks" / "reliability.md"

_HEAD = (
    "lock",
    "rival has the lock after",
    "listener reports",
    "lock object says",
    "both believe",
    "… obeying the listener",
    "nodes left",
    "calls",
)

#: In a cell to which the fault has nothing to say.
NOTHING = "-"

#: The findings of all runs: fault → library → one finding a run.
Findings = dict[str, dict[str, list[Finding]]]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    findings: Findings = {fault: {name: [] for name in options.libraries} for fault in options.only}
    with ExitStack() as parts:
        folder = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="distlock-bench-")))
        commands = _commands(folder, options)
        if not commands:
            return 1
        arenas = [parts.enter_context(Arena(*library)) for library in commands.items()]
        pool = parts.enter_context(ThreadPoolExecutor(len(arenas)))
        for run in range(1, options.runs + 1):
            for fault in options.only:
                _tell(f"run {run} of {options.runs}: {FAULTS[fault].title}")
                # All libraries meet the fault at the same time, so a busy moment hits them alike.
                found = pool.map(partial(_measure, FAULTS[fault]), arenas)
                for arena, finding in zip(arenas, found, strict=True):
                    findings[fault][arena.library].append(finding)
        versions = _versions(arenas)
    text = f"{_conditions(options.runs, versions)}\n\n{tables(findings)}"
    sys.stdout.write(text)
    if options.write:
        pages.fill(PAGE, text)
    return 0


def _measure(fault: Fault, arena: Arena) -> Finding:
    try:
        return fault.run(arena)
    except OSError as error:
        # A port of a proxy may be taken by another process just before the proxy listens there.
        _tell(f"{arena.library}, once more: {error}")
        return fault.run(arena)


def tables(findings: Findings) -> str:
    """Return a section with a table for each fault, in Markdown."""
    sections = []
    for fault, libraries in findings.items():
        rows = [_HEAD, ("---",) * len(_HEAD)]
        for library, runs in libraries.items():
            rows.append((library, *_row(runs)) if runs else (library, "not run", *[""] * 6))
        lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        sections.append(f"### {FAULTS[fault].title}\n\n{FAULTS[fault].how}\n\n{lines}")
    return "\n".join(sections)


def _versions(arenas: Sequence[Arena]) -> str:
    _, _, server = arenas[0].server.command("srvr").partition("version: ")
    versions = {
        "ZooKeeper": server.partition("-")[0],
        "Curator": curator.version() if "Curator" in [a.library for a in arenas] else "",
        "kazoo": kazoo.__version__,
        "Python": platform.python_version(),
    }
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


def _conditions(runs: int, versions: str) -> str:
    medians = f"Times are medians of {runs} runs" if runs > 1 else "One run"
    return (
        f"{medians} on a machine with {os.cpu_count()} cores, "
        f"with sessions of {SESSION_TIMEOUT:g} s. {versions}."
    )


def _row(runs: Sequence[Finding]) -> tuple[str, ...]:
    whole = {name: cell(runs, name) for name in dict.fromkeys(name for run in runs for name in run)}

    def listed(prefix: str) -> Iterator[str]:
        for name, text in whole.items():
            if name.startswith(prefix):
                what = name.removeprefix(prefix)
                came = whole.get(CAME + what, "ok") if prefix == CALL else "ok"
                yield f"{what} {text}" + (f" → {came}" if came != "ok" else "")

    says = whole.get(SAYS, NOTHING)
    return (
        whole.get(RECOVERY, NOTHING),
        ", ".join(listed(TOLD)) or ("nothing" if {RECOVERY, SAYS} <= set(whole) else NOTHING),
        f"lost, after {says}" if says[:1].isdigit() else says,
        whole.get(OVERLAP, NOTHING),
        whole.get(HEEDING, NOTHING),
        whole.get(LEFT, NOTHING),
        ", ".join(listed(CALL)) or NOTHING,
    )


def cell(runs: Sequence[Mapping[str, float | str]], name: str) -> str:
    """Return the median of the numbers, and beside it the texts and how many runs say nothing."""
    values = [run[name] for run in runs if name in run]
    numbers = [value for value in values if isinstance(value, float)]
    texts = sorted({value for value in values if isinstance(value, str)})
    median = [f"{statistics.median(numbers):.2f} s"] if numbers else []
    share = f" ({len(values)} of {len(runs)} runs)" if len(values) < len(runs) else ""
    return " / ".join(median + texts) + share


def _commands(folder: Path, options: argparse.Namespace) -> dict[str, list[str]]:
    commands = {
        name: [sys.executable, "-m", "benchmarks.contenders.python", name]
        for name in options.libraries
    }
    if "Curator" in commands:
        try:
            commands["Curator"] = curator.command(curator.CONTENDER, folder)
        except curator.CuratorMissing as error:
            _tell(f"Curator is not run. {error}")
            del commands["Curator"]
    return commands


def _tell(message: str) -> None:
    sys.stderr.write(f"{message}\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.reliability", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="FAULT")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--runs", type=int, default=1, help="the medians of so many runs")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    if options.write and set(options.only) < set(FAULTS):
        parser.error("--write replaces all tables of the page, so it does not go with --only.")
    return options


if __name__ == "__main__":
    sys.exit(main())
