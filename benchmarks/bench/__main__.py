"""Compare distlock with other locks, at the same work in the same minute.

python -m benchmarks.bench [--quick] [--rounds 5] [--seconds 0.5] [--only NAME…] [--parts PART…]
    [--write]
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import pages
from benchmarks.bench import works
from benchmarks.bench.page import ratios, text
from benchmarks.bench.run import PARTS, Run

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "benchmarks" / "performance.md"
PLOT = PAGE.with_suffix(".png")
#: A thousand sessions take their time.
QUICK_PARTS = [part for part in PARTS if part != "crowds"]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    # A shell's background jobs inherit it ignored; and everything ends with its block.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rounds = options.rounds or (2 if options.quick else 5)
    seconds = options.seconds or (0.1 if options.quick else 0.5)
    names = options.only or [contender.name for contender in works.ALL]
    with tempfile.TemporaryDirectory(prefix="distlock-bench-") as folder:
        run = Run(rounds, seconds, 1 if options.quick else 3, names, Path(folder))
        results = run.go(options.parts or (QUICK_PARTS if options.quick else PARTS))
    blocks = {"targets": ratios(results), "figures": text(results)}
    sys.stdout.write("\n".join(blocks.values()))
    if options.write:
        from benchmarks.bench.plots import draw  # noqa: PLC0415 - of the extra [bench]

        for block, figures in blocks.items():
            pages.fill(PAGE, figures, block)
        draw(results, PLOT)
    return 1 if results.failed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="within a minute, and less exact")
    parser.add_argument("--rounds", type=int, default=0, help="that are counted (5)")
    parser.add_argument("--seconds", type=float, default=0, help="for each of a round (0.5)")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        choices=[contender.name for contender in works.ALL],
        help=", ".join(contender.name for contender in works.ALL),
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="of the run (all)")
    parser.add_argument("--write", action="store_true", help=f"{PAGE.name} and {PLOT.name}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # all that was started has ended with its blocks
        sys.exit(130)
