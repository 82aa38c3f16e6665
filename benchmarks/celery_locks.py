"""Compare celery-once and celery-singleton with distlock: a killed worker, and the cost of a task.

python -m benchmarks.celery_locks [--rounds 5] [--tasks 200] [--write]
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.celery_workers import PATIENCE, ROOT, until, worker
from distlock_chaos.server import ZooKeeper
from tests.kit.services import Redis

PAGE = ROOT / "benchmarks" / "celery-locks.md"

#: Whose tasks are measured: the names of the tasks in `contenders.celery_app`.
BASELINE = "none"
LOCKS = ("celery-once", "celery-singleton", "distlock", "distlock, QueuedOnce")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    with (
        ZooKeeper() as zookeeper,
        Redis() as redis,
        tempfile.TemporaryDirectory(prefix="distlock-bench-") as folder,
    ):
        os.environ.update(ZOOKEEPER=zookeeper.hosts, BROKER=redis.new_database())
        from benchmarks.contenders import celery_app  # noqa: PLC0415 - it reads the environment

        bench = Bench(celery_app)
        stale: dict[str, list[float]] = {name: [] for name in LOCKS}
        cost: dict[str, list[float]] = {name: [] for name in (BASELINE, *LOCKS)}
        publishing: dict[str, list[float]] = {name: [] for name in cost}
        with worker("celery_app", Path(folder, "worker.log"), processes=2):
            for name in cost:  # so that everybody is connected
                bench.cost(name, 10)
            for round_ in range(1, options.rounds + 1):
                sys.stderr.write(f"round {round_} of {options.rounds}\n")
                for name, costs in cost.items():
                    published, whole = bench.cost(name, options.tasks)
                    publishing[name].append(published)
                    costs.append(whole)
            for round_ in range(1, options.kills + 1):
                sys.stderr.write(f"kill {round_} of {options.kills}\n")
                for name, seconds in stale.items():
                    seconds.append(bench.stale(name))
        text = tables(options, stale, publishing, cost, celery_app.EXPIRY)
    sys.stdout.write(text)
    if options.write:
        pages.fill(PAGE, text)
    return 0


class Bench:
    """Sends tasks of every kind, and waits for them."""

    def __init__(self, celery_app: Any) -> None:
        self._tasks = celery_app.app.tasks
        self._board = celery_app.board
        self._keys = 0

    def cost(self, name: str, tasks: int) -> tuple[float, float]:
        """Return the seconds a task takes to publish, and until all are done, each on its key."""
        self._board.set("done", 0)
        keys = [self._new_key() for _ in range(tasks)]
        started = time.monotonic()
        for key in keys:
            self._tasks[name].delay(key, 0)
        published = time.monotonic() - started
        until(lambda: int(self._board.get("done")) >= tasks)
        return published / tasks, (time.monotonic() - started) / tasks

    def stale(self, name: str) -> float:
        """Return the seconds from the SIGKILL of a task's process to the start of the next one."""
        key = self._new_key()
        self._tasks[name].delay(key, 10 * PATIENCE)
        pid, _ = self._began(key, 1)
        killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)

        def next_began() -> bool:
            self._send(name, key)
            return bool(self._board.llen(f"began:{key}") >= 2)

        if name == "distlock":  # it waits in line
            self._send(name, key)
        else:
            until(next_began)
        _, began_at = self._began(key, 2)
        return began_at - killed_at

    def _send(self, name: str, key: str) -> None:
        from celery_once import AlreadyQueued  # noqa: PLC0415 - of the extra [bench]

        try:
            self._tasks[name].delay(key, 0)
        except AlreadyQueued:
            return

    def _began(self, key: str, times: int) -> tuple[int, float]:
        until(lambda: self._board.llen(f"began:{key}") >= times)
        pid, at = self._board.lindex(f"began:{key}", times - 1).split()
        return int(pid), float(at)

    def _new_key(self) -> str:
        self._keys += 1
        return f"k{self._keys}"


def tables(
    options: argparse.Namespace,
    stale: dict[str, list[float]],
    publishing: dict[str, list[float]],
    cost: dict[str, list[float]],
    expiry: float,
) -> str:
    """Return the figures in Markdown."""
    names = ("celery", "celery-once", "celery-singleton", "redis")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    conditions = (
        f"Medians of {options.rounds} rounds of {options.tasks} tasks each, and of "
        f"{options.kills} kills, on a machine with {os.cpu_count()} cores that had other work, "
        f"too. One worker with two processes. Expiry {expiry} s where one has to be given; "
        f"ZooKeeper sessions of 10 s. Python {platform.python_version()}, {versions}."
    )
    lines = [
        conditions,
        "",
        "| lock | from SIGKILL to the next task | publishing a task | a task in all | to no lock |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, costs in cost.items():
        killed = f"{statistics.median(stale[name]):.2f} s" if name in stale else "-"
        # Each round against its own baseline: a busy moment hits the neighbours alike.
        ratio = statistics.median(
            mine / theirs for mine, theirs in zip(costs, cost[BASELINE], strict=True)
        )
        published, whole = (1000 * statistics.median(of[name]) for of in (publishing, cost))
        lines.append(
            f"| {name} | {killed} | {published:.1f} ms | {whole:.1f} ms | {ratio:.1f} : 1 |"
        )
    return "\n".join(lines) + "\n"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.celery_locks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of the costs (5)")
    parser.add_argument("--tasks", type=int, default=200, help="in a round, of each kind (200)")
    parser.add_argument("--kills", type=int, default=3, help="of each kind (3)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
