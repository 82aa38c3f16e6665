"""One schedule: everything follows from its seed, and from which of its faults happen."""

from __future__ import annotations

import random
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.engine.redis.requests import unknown_ms

from . import faults as f
from .callers import LINES, Caller
from .judge import Judge
from .links import Links
from .process import Loop, Process, configuration, simulated, stream, to_the_end
from .redis_server import RedisServer
from .server import REAP, TICK, Server
from .world import Violation, World

if TYPE_CHECKING:
    from collections.abc import Callable

#: Until when faults happen and callers come, in seconds.
WORKING = 20.0
#: One of so many schedules is on Redis.
OF_REDIS = 8
#: For how long a call may go on after that.
PATIENCE = 40.0


class Result(NamedTuple):
    """How a schedule ended."""

    seed: int
    violation: str
    faults: list[f.Fault]
    grants: int


class Stage:
    """Servers, links, processes and callers."""

    def __init__(self, seed: int, trace: list[str] | None) -> None:
        root = random.Random(seed)  # noqa: S311 - it repeats itself
        self._streams = stream(root)
        self.random = stream(root)
        self.world = world = World(stream(root), trace)
        self.names = stream(root)
        self.links = Links(world)
        self.judge = Judge(world)
        choice = self.random
        self.timeout = choice.choice((3.0, 4.0, 6.0, 6.0)) * TICK
        size = choice.choice((1, 3, 3, 3, 3))
        self.lines = choice.sample(LINES, choice.choice((1, 1, 2)))
        self.crowd = choice.choice((1, 2, 3))
        self.pace = choice.choice((0.2, 1.0, 3.0))
        self.haste = choice.choice((1.0, 4.0, 8.0))
        self.on_redis = seed % OF_REDIS == OF_REDIS - 1
        strict = choice.random() < 0.1
        self.conf = configuration(0 if self.on_redis else size, self.timeout, strict=strict)
        self.servers: list[Any] = []
        if self.on_redis:
            self.servers.append(RedisServer(world, self.links, stream(self._streams)))
        else:
            for number in range(size):
                self.servers.append(Server(world, self.links, number, stream(self._streams)))
                self.servers[-1].ensemble = self.servers
        self.processes: list[Process] = []
        self._names = count(1)

    @property
    def bound(self) -> float:
        """The seconds in which all becomes free once nothing is broken any more."""
        timeouts: list[float] = [
            one for server in self.servers for one in server.tree.sessions.values()
        ]
        grace = unknown_ms(self.conf) / 1000 if self.on_redis else 0.0
        return max([self.timeout, grace, *timeouts]) + 6 * TICK

    def add_process(self, *, callers: int | None = None) -> Process:
        """Start a process with callers."""
        living = [one for one in self.processes if not one.dead]
        process = Process(
            f"process{next(self._names)}",
            stream(self._streams),
            links=self.links,
            servers=self.servers,
            conf=self.conf,
            beside=self.random.choice((None, *living)),
        )
        self.processes.append(process)
        task = self.random.random() < 0.3
        if count := self.crowd if callers is None else callers:
            self.add_callers(process, count, WORKING, task=task)
        return process

    def add_callers(
        self, process: Process, number: int, until: float, *, task: bool = False, **how: float
    ) -> list[Caller]:
        """Start threads that take locks until then, or tasks of one event loop."""
        settings = {"pace": self.pace, "longest": 2 * self.timeout, "haste": self.haste} | how
        callers = [
            Caller(
                process,
                f"caller{len(self.judge.callers) + one}",
                self.judge,
                self.lines,
                stream(self._streams),
                until=until,
                task=task,
                **settings,
            )
            for one in range(number)
        ]
        self.judge.callers += callers
        if task:
            process.spawn("loop", lambda: Loop(self.world).run([one.run() for one in callers]))
        for one in () if task else callers:
            process.spawn(str(one), partial(to_the_end, one.run()))
        return callers

    def end(self, newcomer: Caller) -> None:
        """Let a newcomer take each lock, and look what is left."""
        got: list[bool] = []
        newcomer.process.spawn("newcomer", partial(to_the_end, _take_all(self, newcomer, got)))
        self._wait(2 * self.bound, lambda: len(got) == len(self.lines))
        if len(got) < len(self.lines) or not all(got):
            raise Violation(f"a newcomer got {got}")
        self._wait(4 * REAP, lambda: not self.judge.left(self.processes, self.servers))
        if left := self.judge.left(self.processes, self.servers):
            raise Violation(left)

    def _wait(self, seconds: float, enough: Callable[[], bool]) -> None:
        until = self.world.time + seconds
        while self.world.time < until and not enough():
            self.world.run(self.world.time + 1.0)


def run(seed: int, only: list[f.Fault] | None = None, trace: list[str] | None = None) -> Result:
    """Run a schedule.

    :param only: the faults that happen, by default those that follow from the seed
    """
    stage = Stage(seed, trace)
    drawn = f.drawn(stage.random, stage.timeout, WORKING, servers=len(stage.servers))
    faults = drawn if only is None else only
    world, judge = stage.world, stage.judge
    violation = ""
    with simulated(world, stage.names), judge.hears():
        try:
            for _ in range(stage.random.choice((2, 2, 3))):
                stage.add_process()
            f.Faults(stage, faults, WORKING)
            _play(stage)
        except Violation as found:
            violation = str(found)
            world.say("violation", violation)
    return Result(seed, violation, faults, judge.grants)


def _play(stage: Stage) -> None:
    world, judge = stage.world, stage.judge
    world.run(WORKING)
    stage._wait(PATIENCE, lambda: all(one.over or one.process.dead for one in judge.callers))
    newcomer = stage.add_process(callers=0)
    world.run(world.time + 0.01)
    stage.end(*stage.add_callers(newcomer, 1, 0.0, longest=0.0, pace=0.0))


async def _take_all(stage: Stage, caller: Caller, got: list[bool]) -> None:
    """Take each lock once."""
    await caller.run()
    for line in stage.lines:
        got += [await caller.call(line, stage.bound, line.kinds[0])]


def shrink(result: Result) -> Result:
    """Leave out the faults without which the schedule is harmful, too."""
    faults = list(result.faults)
    for fault in list(faults):
        fewer = [one for one in faults if one is not fault]
        again = run(result.seed, fewer)
        if again.violation:
            faults, result = fewer, again
    return result
