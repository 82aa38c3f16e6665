"""Measure tasks under ``@zk_limited("customer:<id>", 3)`` while their workers are killed.

python -m benchmarks.celery_limits [--customers 100] [--tasks 6] [--quick]

A flood: each customer's tasks are published at once, one customer after the other, and two workers
are killed with all their processes. Then few customers, with more processes than permits, while
processes are killed in their tasks. A log in Redis is the witness: it knows nothing of the limits.
"""

from __future__ import annotations

import argparse
import heapq
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.celery_workers import ROOT, worker
from distlock_chaos.server import ZooKeeper
from tests.kit.rabbitmq import RabbitMQ
from tests.kit.services import Redis

ENGINES = ("zookeeper", "redis")
PATIENCE = 300.0


class Run(NamedTuple):
    """A task in a process, by the clock of this machine."""

    customer: str
    pid: int
    begin: float
    end: float
    died: bool


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.engine:  # in a process of its own, since an app has one broker
        return measure(options)
    with ZooKeeper() as zookeeper, Redis() as redis, RabbitMQ() as rabbitmq:
        for engine in options.engines:
            locks = zookeeper.hosts if engine == "zookeeper" else redis.new_database()
            environment = {
                "LOCKS": locks,
                "BOARD": redis.new_database(),
                "BROKER": rabbitmq.new_host(),
            }
            command = [sys.executable, "-m", "benchmarks.celery_limits", "--engine", engine]
            for name in ("customers", "tasks", "seconds", "kills"):
                command += [f"--{name}", str(getattr(options, name))]
            subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **environment})
    return 0


def measure(options: argparse.Namespace) -> int:
    """Write the figures of one engine."""
    from benchmarks.contenders.limits_app import LIMIT  # noqa: PLC0415 - it reads the environment

    with tempfile.TemporaryDirectory(prefix="distlock-bench-") as folder:
        flood = [str(one) for one in range(options.customers) for _ in range(options.tasks)]
        spent, most, _ = run(Path(folder), flood, options.seconds, slots=8, workers_killed=2)
        ideal = least(flood, options.seconds, slots=8, limit=LIMIT)
        sys.stdout.write(
            f"{options.engine}: {len(flood)} tasks of {options.customers} customers, two workers "
            f"killed, in {spent:.1f} s, without kills at least {ideal:.1f} s "
            f"({ideal / spent:.2f}); at most {most} of {LIMIT}\n"
        )
        few = [str(one) for one in range(4) for _ in range(3 * options.kills)]
        spent, most, again = run(Path(folder), few, 1.0, slots=16, kills=options.kills)
        sys.stdout.write(
            f"{options.engine}: {len(few)} tasks of 4 customers, {options.kills} of them killed; "
            f"at most {most} of {LIMIT}; the permits of {len(again)} of them, for which "
            f"others waited, taken again after {statistics.median(again):.3f} s in the median, "
            f"{max(again):.3f} s at most\n"
        )
    return 0


def run(
    folder: Path,
    customers: list[str],
    seconds: float,
    *,
    slots: int,
    workers_killed: int = 0,
    kills: int = 0,
) -> tuple[float, int, list[float]]:
    """Return the seconds, the most inside for a customer, and how late dead slots were taken."""
    from benchmarks.contenders.limits_app import board, report  # noqa: PLC0415

    board.flushdb()
    with ExitStack() as stack:
        names = iter(range(1000))

        def start() -> Any:
            log = folder / f"{slots}-{next(names)}.log"
            return stack.enter_context(worker("limits_app", log, processes=slots // 2))

        workers = [start(), start()]
        started = time.monotonic()
        for customer in customers:
            report.delay(customer, seconds)
        last, deaths = time.monotonic(), 0
        while board.scard("done") < len(customers):
            if time.monotonic() - started > PATIENCE:
                raise TimeoutError(f"{board.scard('done')} of {len(customers)} tasks are done.")
            time.sleep(0.01)
            if time.monotonic() > last + 4 and workers_killed:
                workers_killed -= 1
                kill(group_of(workers.pop(0).pid))
                workers.append(start())
                last = time.monotonic()
            elif time.monotonic() > last + 0.5 and deaths < kills:
                deaths += kill_one()
                last = time.monotonic()
        spent = time.monotonic() - started
        ran = runs()
    return spent, most_inside(ran), taken_again(ran)


def kill_one() -> bool:
    """Kill a process in the middle of its task."""
    inside = [run for run in runs() if run.end == math.inf]
    if inside:
        kill([random.choice(inside).pid])  # noqa: S311 - no secret
    return bool(inside)


def group_of(leader: int) -> list[int]:
    """Return the processes of a group."""
    command = ["/usr/bin/pgrep", "-g", str(leader)]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return [int(pid) for pid in found.stdout.split()]


def kill(pids: Sequence[int]) -> None:
    """Kill processes, and tell the witness."""
    from benchmarks.contenders.limits_app import tell  # noqa: PLC0415

    for pid in pids:
        tell("killed", "-", f"-/{pid}")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def runs() -> list[Run]:
    """Return what the witness knows: a run ends when it says so, or with its process."""
    from benchmarks.contenders.limits_app import board  # noqa: PLC0415

    found: dict[str, Run] = {}
    for line in board.lrange("log", 0, -1):
        when, what, customer, name = str(line).split()
        at, pid = int(when) / 1e9, int(name.rpartition("/")[2])
        if what == "enter":
            found[name] = Run(customer, pid, at, math.inf, died=False)
        elif what == "leave":
            found[name] = found[name]._replace(end=at, died=False)
        else:
            for other, run in found.items():
                if run.pid == pid and run.end == math.inf:
                    found[other] = run._replace(end=at, died=True)
    return list(found.values())


def most_inside(ran: Sequence[Run]) -> int:
    """Return the most runs that were inside at a time for one customer."""
    inside: dict[str, int] = defaultdict(int)
    most = 0
    steps = [(run.begin, 1, run.customer) for run in ran]
    steps += [(run.end, -1, run.customer) for run in ran if run.end < math.inf]
    for _, step, customer in sorted(steps):
        inside[customer] += step
        most = max(most, inside[customer])
    return most


def taken_again(ran: Sequence[Run]) -> list[float]:
    """Return how long after each death the next task of its customer began.

    It is not known where another one has ended meanwhile, or none waited.
    """
    waits = []
    for dead in (run for run in ran if run.died):
        others = [run for run in ran if run.customer == dead.customer]
        begins = [run.begin for run in others if run.begin > dead.end]
        ends = [run.end for run in others if run.end > dead.end]
        if begins and min(begins) < min(ends):
            waits.append(min(begins) - dead.end)
    return waits


def least(customers: Sequence[str], seconds: float, *, slots: int, limit: int) -> float:
    """Return the seconds that the tasks take if nothing but slots and limit delays them."""
    left, now = Counter(customers), 0.0
    running: list[tuple[float, str]] = []
    while left or running:
        inside = Counter(customer for _, customer in running)
        for customer in list(left):
            while left[customer] and inside[customer] < limit and len(running) < slots:
                left[customer] -= 1
                inside[customer] += 1
                heapq.heappush(running, (now + seconds, customer))
        left = +left
        now, _ = heapq.heappop(running)
    return now


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.celery_limits", description=__doc__)
    parser.add_argument("--customers", type=int, default=100, help="of the flood (100)")
    parser.add_argument("--tasks", type=int, default=6, help="of each of them (6)")
    parser.add_argument("--seconds", type=float, default=0.5, help="a task holds its permit (0.5)")
    parser.add_argument("--kills", type=int, default=20, help="of processes in their tasks (20)")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--quick", action="store_true", help="fewer customers, and 6 kills")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.customers, options.kills = 40, 6
    return options


if __name__ == "__main__":
    sys.exit(main())
