"""Measure what the history of locks costs: acquire and release with it, against without it.

python -m benchmarks.history [--rounds 100] [--cycles 100]

The kinds run in interleaved rounds in one process, each round in another order, with a ZooKeeper of
its own and a database file of SQLite. ``on`` counts waits and holds, and records nothing, since all
holds are short; ``events`` does not count; ``all`` has ``HISTORY_SLOW = 0`` and records each hold.
It prints the medians, and those of the quotients by ``off`` in the same round.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import sample
from statistics import median
from typing import Final

import django
from django.conf import settings

from distlock_chaos.server import ZooKeeper

KINDS: Final = {
    "off": {},
    "events": {"HISTORY": 1000},
    "on": {"HISTORY": 1000},
    "all": {"HISTORY": 1000, "HISTORY_SLOW": 0},
}
WARM_UP: Final = 20


def measure(rounds: int, cycles: int) -> dict[str, list[list[float]]]:
    """Return the microseconds of a cycle in each round, by kind: on the clock, and of processor."""
    # These need the settings.
    from distlock import history as receivers  # noqa: PLC0415
    from distlock import zk_lock  # noqa: PLC0415

    taken: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    kept, count = settings.DISTLOCK, receivers.count
    for _ in range(rounds):
        for kind in sample(list(KINDS), len(KINDS)):
            settings.DISTLOCK = {} if kind == "off" else kept
            receivers.connect()  # or disconnect
            settings.DISTLOCK = kept
            receivers.count = count
            if kind == "events":
                receivers.count = lambda *_, **__: None
            lock = zk_lock("cycle", using=kind)
            for number in range(WARM_UP + cycles):
                if number == WARM_UP:
                    began = time.perf_counter(), time.process_time()
                lock.acquire()
                lock.release()
            ended = time.perf_counter(), time.process_time()
            taken[kind].append([1e6 * (b - a) / cycles for a, b in zip(began, ended, strict=True)])
    return taken


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--cycles", type=int, default=100)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, ZooKeeper() as zookeeper:
        alias = {"HOSTS": zookeeper.hosts, "NAMESPACE": "/history"}
        settings.configure(
            INSTALLED_APPS=["distlock"],
            USE_TZ=True,
            DATABASES={
                "default": {
                    "ENGINE": "django.db.backends.sqlite3",
                    "NAME": os.fspath(Path(folder) / "history.sqlite3"),
                }
            },
            DISTLOCK={kind: {**alias, **more} for kind, more in KINDS.items()},
        )
        django.setup()
        from django.core.management import call_command  # noqa: PLC0415

        from distlock.history import flush  # noqa: PLC0415
        from distlock.session.registry import close_sessions  # noqa: PLC0415

        call_command("migrate", verbosity=0)
        taken = measure(options.rounds, options.cycles)
        close_sessions()
        flush()
    for at, name in enumerate(("on the clock", "of processor time")):
        for kind, values in taken.items():
            found = median(one[at] for one in values)
            pairs = zip(values, taken["off"], strict=True)
            times = median(one[at] / off[at] for one, off in pairs)
            sys.stdout.write(f"{kind:6} {found:6.1f} µs {name}, {times:.3f} times\n")


if __name__ == "__main__":
    main()
