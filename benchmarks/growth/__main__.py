"""Measure what many waiters, keys and sessions cost, and compare that with the model on paper.

python -m benchmarks.growth [--waiters 1 10…] [--keys 1 10…] [--sessions 1 10…] [--write]
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import pages
from benchmarks.growth import measure
from benchmarks.growth.page import Growth, draw, text

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "benchmarks" / "scaling.md"
PLOT = PAGE.with_suffix(".png")
NUMBERS = {
    "waiters": [1, 10, 100, 1000],
    "sessions": [1, 10, 100, 500],
    "keys": [1, 10, 100, 1000, 10_000, 100_000],
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    # A shell's background jobs inherit it ignored; and everything ends with its block.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="distlock-growth-") as folder:
        growth = _measure(options, Path(folder))
    figures = text(growth)
    sys.stdout.write(figures)
    if options.write:
        pages.fill(PAGE, figures)
        draw(growth, PLOT)
    return 0


def _measure(options: argparse.Namespace, folder: Path) -> Growth:
    growth = Growth()
    _tell("writes")
    growth.writes = measure.writes()
    for number in options.waiters:
        _tell(f"{number} waiters")
        growth.lines.append(measure.line(number, options.seconds, folder))
    for number in options.sessions:
        _tell(f"{number} sessions")
        # Long enough for all to have given a sign of life twice.
        seconds = max(options.seconds, measure.SESSION_TIMEOUT)
        growth.sessions.append(measure.sessions(number, seconds, folder))
    for number in options.keys:
        _tell(f"{number} keys")
        growth.keys.append(measure.keys(number, folder))
    return growth


def _tell(message: str) -> None:
    sys.stderr.write(f"{message}\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.growth", description=__doc__)
    for name, numbers in NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, nargs="+", default=numbers)
    parser.add_argument("--seconds", type=float, default=5, help="for each number of waiters (5)")
    parser.add_argument("--write", action="store_true", help=f"{PAGE.name} and {PLOT.name}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # all that was started has ended with its blocks
        sys.exit(130)
