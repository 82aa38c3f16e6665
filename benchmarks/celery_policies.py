"""Measure how long many short tasks on few keys take under each policy of ``on_busy``.

python -m benchmarks.celery_policies [--rounds 3] [--tasks 1000] [--quick]
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.celery_workers import ROOT, until, worker
from distlock_chaos.server import ZooKeeper
from tests.kit.rabbitmq import RabbitMQ
from tests.kit.services import Redis

POLICIES = ("retry", "wait", "queue")
BROKERS = ("redis", "rabbitmq", "quorum")
#: When tasks that do not end are given up, in seconds.
PATIENCE = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.broker:  # in a process of its own, since an app has one broker
        return measure(options)
    texts = []
    with ZooKeeper() as zookeeper, Redis() as redis, RabbitMQ() as rabbitmq:
        for broker in options.brokers:
            environment = {
                "ZOOKEEPER": zookeeper.hosts,
                "BOARD": redis.new_database(),
                "BROKER": redis.new_database() if broker == "redis" else rabbitmq.new_host(),
                "QUEUES": "quorum" if broker == "quorum" else "classic",
            }
            command = [sys.executable, "-m", "benchmarks.celery_policies", "--broker", broker]
            for name in ("rounds", "tasks", "seconds", "keys", "slots"):
                command += [f"--{name}", str(getattr(options, name))]
            ran = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                cwd=ROOT,
                env={**os.environ, **environment},
            )
            texts.append(ran.stdout)
    sys.stdout.write(table(options, texts))
    return 0


def measure(options: argparse.Namespace) -> int:
    """Write the table's lines of one broker."""
    from benchmarks.contenders import policies_app  # noqa: PLC0415 - it reads the environment

    seconds: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    inversions: list[int] = []
    put_off: list[int] = []
    board = policies_app.board
    with (
        tempfile.TemporaryDirectory(prefix="distlock-bench-") as folder,
        worker("policies_app", Path(folder, "worker.log"), processes=options.slots),
    ):
        for policy in POLICIES:  # so that everybody is connected
            keys = keys_of(4 * options.slots, options.keys, f"warm-{policy}")
            run(policies_app, policy, keys, 0)
        for round_ in range(options.rounds):
            for policy, spent in seconds.items():
                keys = keys_of(options.tasks, options.keys, f"{policy}{round_}")
                spent.append(run(policies_app, policy, keys, options.seconds))
                sys.stderr.write(f"{options.broker} {policy}: {spent[-1]:.1f} s\n")
            tickets = {k: int(v) for k, v in board.hgetall("tickets").items()}
            served = [
                [tickets[name] for name in names if name in tickets]
                for key in range(options.keys)
                if (names := board.lrange(f"served:queue{round_}-{key}", 0, -1))
            ]
            inversions.append(sum(a > b for line in served for a, b in combinations(line, 2)))
            put_off.append(sum(map(len, served)))
            sys.stderr.write(f"put off: {put_off[-1]}, inversions: {inversions[-1]}\n")
    for policy, spent in seconds.items():
        ratios = [a / b for a, b in zip(spent, seconds["retry"], strict=True)]
        order = f"{max(inversions)}" if policy == "queue" else "-"
        sys.stdout.write(
            f"| {options.broker} | `{policy}` | {statistics.median(spent):.1f} s | "
            f"{statistics.median(ratios):.2f} : 1 | {order} |\n"
        )
    return 0


def keys_of(tasks: int, number: int, name: str) -> list[str]:
    """Return a key for each task, in a random order that is always the same."""
    keys = [f"{name}-{task % number}" for task in range(tasks)]
    random.Random(tasks).shuffle(keys)  # noqa: S311 - no secret
    return keys


def run(policies_app: Any, policy: str, keys: list[str], seconds: float) -> float:
    """Return the seconds from the first publication to the last end."""
    board = policies_app.board
    board.delete("done")
    started = time.monotonic()
    for key in keys:
        policies_app.app.tasks[policy].delay(key, seconds)
    until(lambda: int(board.get("done") or 0) >= len(keys), PATIENCE)
    spent = time.monotonic() - started
    ran = [one for key in set(keys) for one in board.lrange(f"served:{key}", 0, -1)]
    if not len(ran) == len(set(ran)) == len(keys):
        raise AssertionError(f"{len(ran)} runs of {len(set(ran))} tasks, and not of {len(keys)}.")
    return spent


def table(options: argparse.Namespace, lines: Sequence[str]) -> str:
    """Return the figures in Markdown."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("celery", "kombu", "redis"))
    slots = min(options.keys, options.slots)
    return (
        f"Medians of {options.rounds} rounds of {options.tasks} tasks that hold for "
        f"{1000 * options.seconds:g} ms, on {options.keys} keys, with {options.slots} prefork "
        f"processes, on a machine with {os.cpu_count()} cores that had other work, too. The least "
        f"possible is {options.tasks * options.seconds / slots:.1f} s. "
        f"Python {platform.python_version()}, {versions}.\n\n"
        "| broker | policy | until the last has ended | to `retry` | inversions |\n"
        "|---|---|---:|---:|---:|\n" + "".join(lines)
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.celery_policies", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of all policies (3)")
    parser.add_argument("--tasks", type=int, default=1000, help="in a round, of each policy (1000)")
    parser.add_argument("--seconds", type=float, default=0.05, help="a task holds its lock (0.05)")
    parser.add_argument("--keys", type=int, default=10, help="locks, at random (10)")
    parser.add_argument("--slots", type=int, default=8, help="prefork processes of the worker (8)")
    parser.add_argument("--brokers", nargs="+", choices=BROKERS, default=BROKERS)
    parser.add_argument("--quick", action="store_true", help="one round of 200 tasks")
    parser.add_argument("--broker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.tasks = 1, 200
    return options


if __name__ == "__main__":
    sys.exit(main())
