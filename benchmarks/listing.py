"""Measure how long it takes to list many locks, and how much memory that takes.

python -m benchmarks.listing [--locks 10000] [--waiters 0]

The locks are held by sessions of a process of its own; the listing runs in another one, and its
memory is the most that this process ever had.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import django
from django.conf import settings
from kazoo.client import KazooClient

from distlock.inspection.tree import snapshot
from distlock.owner.owner import current
from distlock_chaos.server import ZooKeeper

ROOT = Path(__file__).resolve().parent.parent
NAMESPACE = "/listing"
#: How many are made at a time.
BATCH = 500
#: What the listing is allowed, in seconds: enough to see how long it would take.
BUDGET = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure how long it takes to list many locks.")
    parser.add_argument("--locks", type=int, default=10_000)
    parser.add_argument("--waiters", type=int, default=0, help="in line for each lock")
    parser.add_argument("--list", metavar="HOSTS", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.list:
        sys.stdout.write(listed(options.list))
        return 0
    with ZooKeeper() as zookeeper:
        client = KazooClient(zookeeper.hosts, timeout=600)
        client.start(timeout=30)
        _fill(client, options.locks, options.waiters)
        command = [sys.executable, "-m", "benchmarks.listing", "--list", zookeeper.hosts]
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
        client.stop()
    return 0


def listed(hosts: str) -> str:
    """List all there is, twice, and return what that took."""
    django.setup()
    settings.DISTLOCK = {
        "default": {"HOSTS": hosts, "NAMESPACE": NAMESPACE, "CONNECT_TIMEOUT": BUDGET}
    }
    lines = []
    for _ in range(2):
        started, worked = time.monotonic(), time.process_time()
        seen = snapshot(budget=BUDGET)
        took, work = time.monotonic() - started, time.process_time() - worked
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        waiting = sum(lock.waiting for lock in seen.locks)
        lines.append(
            f"{len(seen.locks)} locks, {waiting} waiting: {took:.2f} s, "
            f"of which {work:.2f} s at work; {most:.0f} MB at most{', cut' if seen.cut else ''}\n"
        )
    return "".join(lines)


def _fill(client: KazooClient, locks: int, waiters: int) -> None:
    data = current().describe()
    paths = [f"{NAMESPACE}/stock:{number}" for number in range(locks)]
    client.ensure_path(NAMESPACE)
    for start in range(0, locks, BATCH):
        made = []
        for path in paths[start : start + BATCH]:
            made.append(client.create_async(path))
            contender = f"{path}/_c_9b0ca9d2-64ee-4ff0-8a4b-b0e0a4f0e4b7-lock-"
            made += [
                client.create_async(contender, data, ephemeral=True, sequence=True)
                for _ in range(waiters + 1)
            ]
        for one in made:
            one.get()


if __name__ == "__main__":
    sys.exit(main())
