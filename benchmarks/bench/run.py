"""The run: all works by all contenders in rounds, each round in another order."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from benchmarks.bench import works
from benchmarks.bench.figures import Series
from benchmarks.bench.pool import Done, Failed, Pool, together
from benchmarks.bench.servers import Servers, counters
from benchmarks.curator import CuratorMissing
from benchmarks.growth.measure import line
from distlock_chaos.proxy import TcpProxy

if TYPE_CHECKING:
    from benchmarks.bench.works import Contender, Work

#: In which a run is done, one after another: the places of the works, and many waiters.
PARTS = (*works.WORKS, "crowds")
#: Of the link on which round trips are counted, each way, in seconds: what a call takes longer on
#: the slower one, it takes for its round trips, and for nothing else.
DELAYS = 0.01, 0.03
#: What is imported, in a Python of its own.
IMPORTS = {"distlock": "distlock", "kazoo and Django": "kazoo.client, django"}
#: How much longer than a round the first, which is not counted, is for Java.
WARM_UP = 3
#: How long one waiter after another gets its turn, in seconds.
CROWD_SECONDS = 3


@dataclass
class Results:
    """All that was measured.

    :ivar series: work → contender → its rounds
    :ivar reentry: kind → nanoseconds, round by round
    :ivar imports: what → seconds, round by round
    :ivar trips: contender → work → round trips waited for
    :ivar crowds: number of waiters → milliseconds of an acquire, round by round
    :ivar left: nodes and watches that refused attempts have left behind
    :ivar missing: contender → why it was not measured
    :ivar failed: what has gone wrong
    """

    rounds: int
    seconds: float
    series: dict[str, dict[str, Series]] = field(default_factory=dict)
    reentry: dict[str, list[float]] = field(default_factory=dict)
    imports: dict[str, list[float]] = field(default_factory=dict)
    trips: dict[str, dict[str, float]] = field(default_factory=dict)
    crowds: dict[int, list[float]] = field(default_factory=dict)
    left: int | None = None
    missing: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    load: tuple[float, float] = (0.0, 0.0)
    took: float = 0.0


class Run:
    """One run of the benchmark.

    :param rounds: how many are counted
    :param seconds: how long a contender is at one work
    :param gatherings: how often in a round all come at once
    :param names: which contenders
    :param folder: for logs and the like
    """

    def __init__(
        self, rounds: int, seconds: float, gatherings: int, names: Sequence[str], folder: Path
    ) -> None:
        self.results = Results(rounds, seconds)
        self._gatherings = gatherings
        self._names = names
        self._folder = folder

    def go(self, parts: Collection[str]) -> Results:
        """Do these `PARTS` of it."""
        began, load = time.monotonic(), os.getloadavg()[0]
        do = {
            "single": self._single,
            "link": self._link,
            "ensemble": self._ensemble,
            "crowds": self._crowds,
        }
        for part in PARTS:
            if part in parts:
                _tell(part)
                (self._folder / part).mkdir()
                do[part](self._folder / part)
        self.results.load = load, os.getloadavg()[0]
        self.results.took = time.monotonic() - began
        return self.results

    def _single(self, folder: Path) -> None:
        with Servers() as servers, Pool(servers, folder) as pool:
            for contender in works.ALL:
                if contender.kept in servers.missing:
                    self.results.missing[contender.name] = servers.missing[contender.kept]
            self._rounds(pool, "single")
            self._refusals_leave_nothing(servers, pool)

    def _link(self, folder: Path) -> None:
        with Servers(others=False) as servers:
            (server,) = servers.zookeeper.servers
            with (
                TcpProxy("127.0.0.1", server.port) as link,
                Pool(servers, folder, hosts=link.address) as pool,
            ):
                self._rounds(pool, "link", link)
                self._count_round_trips(link, pool)

    def _ensemble(self, folder: Path) -> None:
        with Servers(3, others=False) as servers, Pool(servers, folder) as pool:
            self._rounds(pool, "ensemble")

    def _crowds(self, folder: Path) -> None:
        if not self._takes_part(works.DISTLOCK):
            return
        for round_ in range(1, self.results.rounds + 1):
            _tell(f"round {round_} of {self.results.rounds}")
            try:
                found = {number: line(number, CROWD_SECONDS, folder) for number in works.CROWDS}
            except (Failed, TimeoutError) as error:
                self._note_failure("many waiters", error)
                return
            for number, each in found.items():
                self.results.crowds.setdefault(number, []).append(each.milliseconds)

    def _try_java(self, pool: Pool) -> None:
        if works.CURATOR.name not in self._names:
            return
        try:
            pool.processes("Java", 1)
        except CuratorMissing as error:
            self.results.missing[works.CURATOR.name] = str(error)

    def _takes_part(self, contender: Contender) -> bool:
        return contender.name in self._names and contender.name not in self.results.missing

    def _rounds(self, pool: Pool, where: str, link: TcpProxy | None = None) -> None:
        self._try_java(pool)
        for round_ in range(self.results.rounds + 1):
            _tell(f"round {round_} of {self.results.rounds}" if round_ else "warming up")
            for work in works.WORKS[where]:
                if link is not None:
                    link.delay(work.delay)
                for contender in _rotated(work.contenders, round_):
                    if self._takes_part(contender):
                        self._measure(pool, work, contender, round_)
            if round_ and where == "single" and self._takes_part(works.DISTLOCK):
                order = f"reentry {self.results.seconds}"
                for kind, nanos in pool.ask("Python", order).items():
                    self.results.reentry.setdefault(kind, []).append(nanos)
                for name, modules in IMPORTS.items():
                    self.results.imports.setdefault(name, []).append(_import(modules))

    def _measure(self, pool: Pool, work: Work, contender: Contender, round_: int) -> None:
        seconds = self.results.seconds
        try:
            if not round_:
                longer = WARM_UP if contender.language == "Java" else 0.5
                pool.run(contender, work, longer * seconds)
                return
            done = self._done(pool, work, contender)
        except Failed as error:
            self._note_failure(f"{contender.name}, {work.name}", error)
            self.results.missing[contender.name] = "It failed, see below."
            for of in self.results.series.values():
                of.pop(contender.name, None)  # a round is missing
            return
        of = self.results.series.setdefault(work.name, {})
        of.setdefault(contender.name, Series()).add(work, done, seconds)

    def _note_failure(self, what: str, error: Exception) -> None:
        _tell(str(error))
        # The page gets the last line, without the traceback and its paths.
        self.results.failed.append(f"{what}: {str(error).strip().splitlines()[-1]}")

    def _done(self, pool: Pool, work: Work, contender: Contender) -> Done:
        times = self._gatherings if work.count else 1
        return together([pool.run(contender, work, self.results.seconds) for _ in range(times)])

    def _refusals_leave_nothing(self, servers: Servers, pool: Pool) -> None:
        if not self._takes_part(works.DISTLOCK):
            return
        server = servers.zookeeper.servers[0]
        client = KazooClient(server.address)
        client.start()

        def left() -> int:
            client.sync("/bench")
            nodes = sum(
                len(client.get_children(f"/bench/distlock/{key}"))
                for key in client.get_children("/bench/distlock")
            )
            return nodes + counters(server)["zk_watch_count"]

        before = left()
        pool.run(works.DISTLOCK, works.REFUSED, self.results.seconds)
        deadline = time.monotonic() + 10
        while left() > before and time.monotonic() < deadline:
            time.sleep(0.02)  # releases are not waited for
        self.results.left = max(left() - before, 0)
        client.stop()
        client.close()

    def _count_round_trips(self, link: TcpProxy, pool: Pool) -> None:
        """Slow the link down, and see how often a call waits for it."""
        for work in (works.UNCONTENDED, works.REFUSED):
            for contender in work.contenders:
                if contender.kept != "ZooKeeper" or not self._takes_part(contender):
                    continue
                few = replace(work, count=5)
                pool.run(contender, few, 1)  # which connects
                took = []
                for delay in DELAYS:
                    link.delay(delay)
                    done = pool.run(contender, few, 1)
                    took.append(sum(done.cycles))
                link.pass_through()
                fast, slow = DELAYS
                each = (took[1] - took[0]) / (2 * (slow - fast))
                self.results.trips.setdefault(contender.name, {})[work.name] = each


def _import(modules: str) -> float:
    """Return how many seconds it takes to import them."""
    clock = "time.perf_counter()"
    program = f"import time; began = {clock}; import {modules}; print({clock} - began)"
    command = [sys.executable, "-c", program]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _rotated(contenders: Sequence[Contender], by: int) -> Sequence[Contender]:
    by %= len(contenders)
    return [*contenders[by:], *contenders[:by]]


def _tell(message: str) -> None:
    sys.stderr.write(f"{message}\n")
