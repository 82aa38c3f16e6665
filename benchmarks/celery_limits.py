"""Measure tasks under ``@zk_limited({"all": 6, "customer:<id>": 3})`` while processes are killed.

python -m benchmarks.celery_limits [--customers 100] [--tasks 6] [--quick]

A flood: each customer's tasks are published at once, one customer after the other, while processes
are killed in their tasks, and two workers with all of theirs. Then few customers, with more
processes than permits, while processes are killed; and a customer with few tasks, alone and beside
a flood of another. A log in Redis is the witness: it knows nothing of the limits.
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
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from benchmarks.celery_workers import ROOT, until, worker
from distlock_chaos.server import ZooKeeper
from tests.kit.engines import in_place_of_zookeeper
from tests.kit.rabbitmq import RabbitMQ
from tests.kit.services import Redis

ENGINES = ("zookeeper", "redis")
#: How many tasks of a customer may run at a time.
LIMIT = 3
#: The seconds in which the next task must end.
PATIENCE = 120.0


class Run(NamedTuple):
    """A task in a process, by the clock of this machine."""

    task: str
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
            server = zookeeper if engine == "zookeeper" else in_place_of_zookeeper(redis)
            environment = {
                "LOCKS": server.hosts,
                "BOARD": redis.new_database(),
                "BROKER": rabbitmq.new_host(),
                "ALL": str(options.all),
            }
            command = [sys.executable, "-m", "benchmarks.celery_limits", "--engine", engine]
            for name in (
                "customers",
                "tasks",
                "seconds",
                "kills",
                "workers_killed",
                "slots",
                "all",
            ):
                command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
            subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **environment})
    return 0


def measure(options: argparse.Namespace) -> int:
    """Write the figures of one engine."""

    def say(text: str) -> None:
        sys.stdout.write(f"{options.engine}: {text}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="distlock-bench-") as name:
        folder, in_all = Path(name), options.all
        flood = [str(one) for one in range(options.customers) for _ in range(options.tasks)]
        ideal = least(flood, options.seconds, in_all=min(options.slots, in_all))
        deaths = [(n + 1) * ideal / (options.kills + 1) for n in range(options.kills)]
        ends = [(n + 0.5) * ideal / options.workers_killed for n in range(options.workers_killed)]
        with Workers(folder, in_all, options.slots) as workers:
            spent = workers.run(flood, options.seconds, deaths=deaths, ends=ends)
        ran = runs()
        say(
            f"{len(flood)} tasks of {options.customers} customers, {len(deaths)} of them and "
            f"{len(ends)} workers killed, in {spent:.1f} s, without kills at least {ideal:.1f} s "
            f"({ideal / spent:.2f}); {limits_kept(ran, in_all)}; {free_for(ran, of_all)}"
        )
        few = [str(one) for one in range(4) for _ in range(3 * options.kills)]
        in_all = 4 * LIMIT
        with Workers(folder, in_all, 16) as workers:
            deaths = [0.5 * (n + 1) for n in range(options.kills)]
            workers.run(few, 1.0, deaths=deaths)
        ran = runs()
        say(
            f"{len(few)} tasks of 4 customers, {len(deaths)} of them killed; "
            f"{limits_kept(ran, in_all)}; {free_for(ran, of_customer)}"
        )
        with Workers(folder, options.all, options.slots) as workers:
            alone = workers.waits_of_a_small_customer(options.seconds)
            beside = workers.waits_of_a_small_customer(options.seconds, flood=270)
        say(
            f"a small customer waits {alone:.3f} s (95 %) alone, {beside:.3f} s beside a flood of "
            f"another ({beside / alone:.2f})"
        )
    started = time.monotonic()
    while (left := nodes()) and time.monotonic() < started + PATIENCE:
        time.sleep(1)
    say(f"{left} nodes are left after {time.monotonic() - started:.0f} s")
    return 0


class Workers:
    """Two workers whose tasks are under both limits.

    :param in_all: how many tasks may run at a time
    :param slots: how many processes there are
    """

    def __init__(self, folder: Path, in_all: int, slots: int) -> None:
        self._folder, self._in_all, self._slots = folder, in_all, slots
        self._stack = ExitStack()
        self._workers: list[Any] = []

    def __enter__(self) -> Workers:
        from benchmarks.contenders.limits_app import board  # noqa: PLC0415

        board.delete("log", "done")  # the locks distrust a Redis server that was flushed
        for _ in range(2):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        log = Path(tempfile.mkstemp(suffix=".log", dir=self._folder)[1])
        os.environ["ALL"] = str(self._in_all)
        one = worker("limits_app", log, processes=self._slots // 2)
        self._workers.append(self._stack.enter_context(one))

    def _send(self, customers: Iterable[str], seconds: float) -> list[str]:
        from benchmarks.contenders.limits_app import report  # noqa: PLC0415

        return [report.delay(customer=customer, seconds=seconds).id for customer in customers]

    def run(
        self,
        customers: list[str],
        seconds: float,
        *,
        deaths: Sequence[float] = (),
        ends: Sequence[float] = (),
    ) -> float:
        """Run these customers' tasks, and return the seconds that it took.

        :param deaths: when to kill a process, in seconds from the start
        :param ends: when to kill a worker
        """
        from benchmarks.contenders.limits_app import board  # noqa: PLC0415

        due = sorted([*((at, False) for at in deaths), *((at, True) for at in ends)])
        started = last = time.monotonic()
        sending = Thread(target=self._send, args=(customers, seconds))
        sending.start()
        done = 0
        while done < len(customers):
            if (now := board.scard("done")) > done:
                done, last = now, time.monotonic()
            if time.monotonic() > last + PATIENCE:
                raise TimeoutError(f"{done} of {len(customers)} tasks are done.")
            time.sleep(0.02)
            if due and time.monotonic() > started + due[0][0]:
                _, whole = due.pop(0)
                if whole:
                    kill(group_of(self._workers.pop(0).pid))
                    self._start()
                else:
                    kill_one()
        sending.join()
        return time.monotonic() - started

    def waits_of_a_small_customer(
        self, seconds: float, *, flood: int = 0, tasks: int = 60
    ) -> float:
        """Return the 95 % percentile of the waits of a customer's tasks, sent one after the other.

        :param flood: how many tasks another customer has sent, and that were all put off since
        """
        from benchmarks.contenders.limits_app import app, board  # noqa: PLC0415

        board.delete("log", "done")  # the locks distrust a Redis server that was flushed
        self._send(["big"] * flood, seconds)
        with app.connection_for_read() as connection:
            until(lambda: not connection.default_channel.queue_declare("celery", passive=True)[1])
        sent = {}
        for _ in range(tasks):
            now = time.monotonic()
            (name,) = self._send(["small"], seconds)
            sent[name] = now
            time.sleep(random.uniform(0.5, 1.5) * seconds)  # noqa: S311 - no secret
        until(lambda: board.scard("done") == flood + tasks, PATIENCE)
        waits = [run.begin - sent[run.task] for run in runs() if run.task in sent]
        return statistics.quantiles(waits, n=20)[-1]


def nodes(path: str = "") -> int:
    """Return how many nodes the lock server has for these tasks."""
    from distlock.engine.errors import NoNode  # noqa: PLC0415
    from distlock.session.registry import session_for  # noqa: PLC0415 - after the settings

    session = session_for()
    path = path or session.root
    try:
        names = session.call(session.children, path, key="nodes")
    except NoNode:
        return 0
    return len(names) + sum(nodes(f"{path}/{name}") for name in names)


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
            found[name] = Run(name.partition("/")[0], customer, pid, at, math.inf, died=False)
        elif what == "leave":
            found[name] = found[name]._replace(end=at, died=False)
        else:
            for other, run in found.items():
                if run.pid == pid and run.end == math.inf:
                    found[other] = run._replace(end=at, died=True)
    return list(found.values())


def of_all(_: Run) -> str:
    """Return what the rule for all counts a run for."""
    return "all"


def of_customer(run: Run) -> str:
    """Return what the rule for each customer counts a run for."""
    return run.customer


def limits_kept(ran: Sequence[Run], in_all: int) -> str:
    most, each = most_inside(ran, of_all), most_inside(ran, of_customer)
    return f"at most {most} of {in_all} in all, and {each} of {LIMIT} of a customer"


def most_inside(ran: Sequence[Run], rule: Callable[[Run], str]) -> int:
    """Return the most runs that were inside at a time under a rule."""
    inside: dict[str, int] = defaultdict(int)
    most = 0
    steps = [(run.begin, 1, rule(run)) for run in ran]
    steps += [(run.end, -1, rule(run)) for run in ran if run.end < math.inf]
    for _, step, name in sorted(steps):
        inside[name] += step
        most = max(most, inside[name])
    return most


def free_for(ran: Sequence[Run], rule: Callable[[Run], str]) -> str:
    again = taken_again(ran, rule)
    if not again:
        return "of no killed one is it known when its permit was taken again"
    return (
        f"the permits of {len(again)} of the killed, for which others waited, taken again after "
        f"{statistics.median(again):.3f} s in the median, {max(again):.3f} s at most"
    )


def taken_again(ran: Sequence[Run], rule: Callable[[Run], str]) -> list[float]:
    """Return how long after each death the next task under its rule began.

    It is not known where another one has ended meanwhile, or none waited.
    """
    waits = []
    for dead in (run for run in ran if run.died):
        others = [run for run in ran if rule(run) == rule(dead)]
        begins = [run.begin for run in others if run.begin > dead.end]
        ends = [run.end for run in others if run.end > dead.end]
        if begins and min(begins) < min(ends):
            waits.append(min(begins) - dead.end)
    return waits


def least(customers: Sequence[str], seconds: float, *, in_all: int) -> float:
    """Return the seconds that the tasks take if nothing but the limits delays them."""
    left, now = Counter(customers), 0.0
    running: list[tuple[float, str]] = []
    while left or running:
        inside = Counter(customer for _, customer in running)
        for customer in list(left):
            while left[customer] and inside[customer] < LIMIT and len(running) < in_all:
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
    parser.add_argument("--slots", type=int, default=8, help="processes of both workers (8)")
    parser.add_argument("--all", type=int, default=6, help="tasks at a time in all (6)")
    parser.add_argument("--kills", type=int, default=20, help="of processes in their tasks (20)")
    parser.add_argument("--workers-killed", type=int, default=2, help="in the flood (2)")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--quick", action="store_true", help="fewer customers, and 6 kills")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.customers, options.kills = 40, 6
    return options


if __name__ == "__main__":
    sys.exit(main())
