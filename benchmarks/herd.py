"""Count what a release costs while many wait: in line, and without a line (the herd).

python -m benchmarks.herd [--waiters 1 10 100 1000] [--releases 3] [--write]

Every waiter has a session of its own, as if it were a process of its own: waiters that share a
session share its watch, too, so that a herd of threads in one process is told once. The server
counts, before a release and when all is quiet after it.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import pages
from benchmarks.plot import log_log
from distlock_chaos.server import ZooKeeper

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "benchmarks" / "herd.md"
PLOT = PAGE.with_suffix(".svg")

#: How many sessions one process carries.
CROWD = 125
#: In seconds: so long that no heartbeat, and no holder's watch on its own node, is counted.
SESSION_TIMEOUT = 7200
#: How long all may take to become quiet, in seconds. Then something is wrong, and it ends.
PATIENCE = 180.0


class Cost(NamedTuple):
    """What one release has set off until all was quiet again."""

    events: int
    requests: int


#: The medians: "fair" or "unfair" → number of waiters → cost.
Costs = dict[str, dict[int, Cost]]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    costs: Costs = {"fair": {}, "unfair": {}}
    for waiters in options.waiters:
        for kind, found in costs.items():
            _tell(f"{waiters} waiting, {kind}")
            found[waiters] = measure(kind, waiters, options.releases)
    text = table(costs)
    sys.stdout.write(text)
    if options.write:
        pages.fill(PAGE, text)
        PLOT.write_text(plot(costs))
    return 0


def measure(kind: str, waiters: int, releases: int) -> Cost:
    """Return the medians of so many releases, at each of which so many wait."""
    limits = {"maxSessionTimeout": str(SESSION_TIMEOUT * 1000)}
    with ZooKeeper(config=limits) as zookeeper, crowds(zookeeper, kind, waiters + 1) as contenders:
        herd = Herd(zookeeper, contenders, waiters)
        found = [herd.release() for _ in range(releases)]
    events, requests = zip(*found, strict=True)
    return Cost(round(statistics.median(events)), round(statistics.median(requests)))


class Herd:
    """One who holds and many who wait, and what the server has counted of them."""

    def __init__(self, zookeeper: ZooKeeper, contenders: Sequence[Crowd], waiters: int) -> None:
        self._server = zookeeper.servers[0]
        self._contenders = contenders
        self._waiters = waiters
        self._questions = 0

        # The first holder may watch its own node, too, and is not counted.
        self._release(self._quiet(waiters, waiters + 1))

    def release(self) -> Cost:
        """Count from a release until another holds and the rest waits."""
        holder = self._quiet(self._waiters)
        before = self._counted()
        after = self._release(holder)
        return Cost(after.events - before.events, after.requests - before.requests)

    def _release(self, holder: Crowd) -> Cost:
        """Let the holder release, return what has been counted then, and let it wait again."""
        holder.tell("release")
        self._quiet(self._waiters - 1)
        counted = self._counted()
        holder.tell("join")
        return counted

    def _quiet(self, *watches: int) -> Crowd:
        """Wait until one holds, so many watch and nothing is under way; return where it holds."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._counters()["zk_watch_count"] in watches:
                looks = [crowd.look() for crowd in self._contenders]
                holders = [i for i, look in enumerate(looks) if look.holding]
                if len(holders) == 1 and not any(look.unanswered for look in looks):
                    return self._contenders[holders[0]]
            time.sleep(0.05)
        raise TimeoutError(f"There were not {watches} watches within {PATIENCE:g} s.")

    def _counted(self) -> Cost:
        counters = self._counters()
        requests = counters["zk_packets_received"] - self._questions
        return Cost(counters["zk_sum_node_deleted_watch_count"], requests)

    def _counters(self) -> dict[str, int]:
        self._questions += 1  # the server counts them among its packets
        answer = self._server.command("mntr")
        return {name: int(number) for name, number in re.findall(r"(?m)^(\w+)\t(\d+)$", answer)}


class Look(NamedTuple):
    holding: int
    unanswered: int


class Crowd:
    """A process with some of the contenders: `benchmarks.crowd`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.listen()

    def tell(self, order: str) -> None:
        print(order, file=self._process.stdin, flush=True)

    def listen(self) -> str:
        said = next(iter(self._process.stdout or ()), "")
        if not said:
            raise RuntimeError("A process of contenders has ended; its traceback is above.")
        return said

    def look(self) -> Look:
        self.tell("look")
        return Look(*map(int, self.listen().split()))


@contextmanager
def crowds(zookeeper: ZooKeeper, kind: str, contenders: int) -> Iterator[list[Crowd]]:
    """Processes with as many contenders, which all contend; they end with the block."""
    command = [sys.executable, "-m", "benchmarks.crowd", zookeeper.hosts, kind]
    with ExitStack() as stack:
        processes = []
        for start in range(0, contenders, CROWD):
            number = str(min(CROWD, contenders - start))
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, number],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                )
            )
            stack.callback(process.kill)
            processes.append(process)
        yield [Crowd(process) for process in processes]


# --- what is shown -------------------------------------------------------------------------------

_HEAD = (
    "waiting",
    "events, `fair=True`",
    "events, `fair=False`",
    "requests, `fair=True`",
    "requests, `fair=False`",
)


def table(costs: Costs) -> str:
    """Return a Markdown table, one row for each number of waiters."""
    rows = [_HEAD, ["---:"] * len(_HEAD)]
    for waiters, fair in costs["fair"].items():
        unfair = costs["unfair"][waiters]
        figures = (waiters, fair.events, unfair.events, fair.requests, unfair.requests)
        rows.append([f"{figure:,}" for figure in figures])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def plot(costs: Costs) -> str:
    """Return an SVG of the watch events and requests by the number of waiters."""
    return log_log(
        "Set off by one release",
        {
            f"{what}, fair={kind == 'fair'}": {
                waiters: getattr(cost, what) for waiters, cost in found.items()
            }
            for what in Cost._fields
            for kind, found in costs.items()
        },
        x_label="waiting",
    )


def _tell(message: str) -> None:
    sys.stderr.write(f"{message}\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.herd", description=__doc__)
    parser.add_argument("--waiters", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--releases", type=int, default=3, help="the medians of so many")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name} and {PLOT.name}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
