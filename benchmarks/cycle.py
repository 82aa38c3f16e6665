"""Show where one uncontended acquire and release spends its time in Python, by function.

python -m benchmarks.cycle [--cycles 20000] [--top 30] [--flame FILE.svg]

It starts a ZooKeeper and a process that acquires and releases; py-spy (of the extra ``[bench]``)
looks from outside which function has Python's global lock, so nothing is slowed down that is not
slow. Sending, receiving and waiting happen without that lock, and are not part of the table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.calls import room, set_up
from distlock_chaos.server import ZooKeeper

ROOT = Path(__file__).resolve().parent.parent
SPY: Final = Path(sys.executable).with_name("py-spy")
#: How many cycles go first, until all parents are there and the heartbeat sleeps.
WARM_UP: Final = 500
#: How often py-spy looks, in a second.
RATE: Final = 500

#: (thread, function) → how often it was seen.
Seen = Counter[tuple[str, str]]


# --- the process that is profiled ----------------------------------------------------------------


def cycles(hosts: str, number: int) -> dict[str, float]:
    """Acquire and release so often; return the microseconds of processor time of a cycle."""
    set_up(hosts)
    from distlock import zk_lock  # noqa: PLC0415 - needs the settings

    lock = zk_lock("cycle")
    repeat(lock, WARM_UP)
    before = os.times()
    repeat(lock, number)
    after = os.times()
    return {
        "user": 1e6 * (after.user - before.user) / number,
        "system": 1e6 * (after.system - before.system) / number,
    }


def repeat(lock: Any, number: int) -> None:
    """Acquire and release so often: a frame by which the profile knows the caller."""
    for _ in range(number):
        lock.acquire()
        lock.release()


# --- what is shown -------------------------------------------------------------------------------


def functions(stacks: str) -> Seen:
    """Count the functions that ran, in the caller's cycles and on the connection thread.

    :param stacks: py-spy's raw format: a line for each stack, outermost first, with its number
    """
    seen: Seen = Counter()
    for line in stacks.splitlines():
        stack, _, number = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if any(frame.startswith("repeat (") for frame in frames):
            seen["caller", frames[-1]] += int(number)
        elif "distlock" in thread:
            seen["connection thread", frames[-1]] += int(number)
    return seen


def by_room(seen: Seen) -> Seen:
    """Add up the functions of each room, and those of each thread."""
    rooms: Seen = Counter()
    for (thread, function), number in seen.items():
        path = function.partition(" (")[2].rpartition(":")[0]
        rooms[thread, room(f"/{path}")] += number
        rooms[thread, "all"] += number
    return rooms


def table(kind: str, seen: Seen, total: int, top: int) -> str:
    """Return a Markdown table of the shares, the highest first."""
    rows = [f"| {kind} | thread | share |", "| --- | --- | ---: |"]
    rows += [
        f"| {name} | {thread} | {number / total:.1%} |"
        for (thread, name), number in seen.most_common(top)
    ]
    return "\n".join(rows) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.hosts:
        sys.stdout.write(json.dumps(cycles(options.hosts, options.cycles)))
        return 0
    if not SPY.exists():
        raise SystemExit("py-spy was not found. Type: pip install --editable '.[bench]'")
    with ZooKeeper() as zookeeper, tempfile.TemporaryDirectory(prefix="distlock-cycle-") as folder:
        run = [sys.executable, "-m", "benchmarks.cycle", "--hosts", zookeeper.hosts]
        run += ["--cycles", str(options.cycles)]
        took = json.loads(_output(run))
        stacks = Path(folder) / "stacks"
        _output([*_spy("raw", stacks), *run])
        if options.flame:
            _output([*_spy("flamegraph", options.flame), *run])
        seen = functions(stacks.read_text())
    sys.stdout.write(
        f"{took['user']:.0f} µs of processor time in Python, {took['system']:.0f} µs in the "
        "operating system\n\n"
    )
    sys.stdout.write(table("room", by_room(seen), seen.total(), options.top) + "\n")
    sys.stdout.write(table("function", seen, seen.total(), options.top))
    return 0


def _spy(kind: str, output: Path) -> list[str]:
    options = ["--gil", "--threads", "--function", "--rate", str(RATE), "--format", kind]
    return [str(SPY), "record", *options, "--output", str(output), "--"]


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.cycle", description=__doc__)
    parser.add_argument("--cycles", type=int, default=20_000, help="how many")
    parser.add_argument("--top", type=int, default=30, help="how many functions are listed")
    parser.add_argument("--flame", type=Path, help="write a flame graph, too")
    parser.add_argument("--hosts", default="", help="only run, at this ZooKeeper, unprofiled")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
