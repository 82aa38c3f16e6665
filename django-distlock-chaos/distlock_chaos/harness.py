"""Runs it all: servers, registers, workers, the nemesis; and writes the history."""

from __future__ import annotations

import logging
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distlock.keys.limits import LEAST_TICKS, MOST_TICKS

from . import history, network, schedule
from .aim import Aim
from .fleet import Fleet
from .history import History
from .nemesis import Nemesis
from .recipes import Permits
from .register import Registers
from .scenes import Scenes
from .site import site
from .tree import NAMESPACE, Tree
from .worker import TIMEOUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .history import Event
    from .site import Site

#: How long after its last release a recipe may take to remove its nodes and watches, in seconds.
CLEAN_UP_SECONDS: Final = 5.0
#: How long a worker may take to start, in seconds.
START_SECONDS: Final = 30.0
#: How long a worker may take to end, in seconds.
END_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """The size of a run.

    :ivar engine: "zookeeper" or "redis"
    :ivar volatile: whether a Redis server keeps nothing on disk
    :ivar seconds: for how long the workers work; the start and the end come on top
    :ivar threads: how many threads each process has
    :ivar keys: how many locks they share
    :ivar session_timeout: in seconds; the servers grant 2 to 20 ticks
    :ivar tick: the servers' unit of time, in seconds
    :ivar strict: the setting ``STRICT`` of the workers
    :ivar only: the kinds of faults to choose from; by default all but those that must be named
    """

    engine: str = "zookeeper"
    volatile: bool = False
    seconds: float = 120.0
    processes: int = 8
    seed: int = 1
    nodes: int = 1
    recipe: str = "distlock"
    threads: int = 2
    keys: int = 4
    session_timeout: float = 4.0
    strict: bool = False
    tick: float = 1.0
    only: tuple[str, ...] = ()


def run(options: Options, progress: Callable[[str], None]) -> list[Event]:
    """Run once and return the history.

    :raises ValueError: so small a run would show nothing
    :raises ServerError: the servers could not be run
    """
    if options.processes < 2:
        raise ValueError(f"processes is {options.processes}: two are the fewest that can collide.")
    redis = options.engine == "redis"
    if redis and (options.strict or options.recipe == "kazoo"):
        raise ValueError("With Redis there is no --strict and no recipe of kazoo.")
    if not redis and options.volatile:
        raise ValueError("ZooKeeper always writes to the disk: --volatile is for Redis.")
    if not redis and not LEAST_TICKS <= options.session_timeout / options.tick <= MOST_TICKS:
        raise ValueError(
            f"A session timeout of {options.session_timeout:g} s is not granted: ZooKeeper grants "
            f"{LEAST_TICKS} to {MOST_TICKS} ticks, and a tick is {options.tick:g} s."
        )
    with ExitStack() as stack:
        for name in ("kazoo", "distlock"):  # they report every fault of ours
            stack.enter_context(_silenced(logging.getLogger(name)))
        several = options.nodes > 1 and not redis
        obstacle = network.missing() if several else "no fault needs links between servers"
        if obstacle is None:
            stack.enter_context(network.own())
        elif several:
            progress(f"no partitions: {obstacle}")
        faults = schedule.plan(
            options.seed,
            options.seconds,
            nodes=options.nodes,
            session_timeout=options.session_timeout,
            network=obstacle is None,
            only=options.only,
            recipe=options.recipe,
            redis=redis,
        )
        if not faults:
            raise ValueError(f"{options.seconds:g} seconds are too short for a single fault.")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="distlock-chaos-")))
        paths = folder / "harness.jsonl", folder / "workers.jsonl"
        told = History(paths[0])
        stack.callback(told.close)
        servers = stack.enter_context(site(options))
        registers = stack.enter_context(Registers(folder / "registers", told))
        keys = [f"key:{number}" for number in range(options.keys)]
        told.say(
            "run",
            **asdict(options),
            format=history.FORMAT,
            limit=Permits.limit,
            faults=[asdict(fault) for fault in faults],
        )
        given: dict[str, Any] = {
            **asdict(options),
            "keys": keys,
            "namespace": NAMESPACE,
            "registers": str(registers.path),
            "folder": str(folder),
            "history": str(paths[1]),
        }
        fleet = stack.enter_context(Fleet(options.processes, servers.servers, given, told))

        def aim_over(hosts: str) -> Aim:
            return Aim(Tree(hosts, NAMESPACE, options.session_timeout), options.recipe)

        scenes = Scenes(servers, fleet, registers, told, aim_over, keys=keys, progress=progress)
        nemesis = Nemesis(
            servers,
            fleet,
            told,
            aim_over(servers.hosts),
            scenes,
            keys=keys,
            session_timeout=options.session_timeout,
            progress=progress,
        )
        _until(lambda: all(worker.ready for worker in fleet.workers), START_SECONDS)
        ends_at = time.monotonic() + options.seconds
        nemesis.run(faults)
        _until(lambda: any(fleet.died()), ends_at - time.monotonic())
        progress("the work ends")
        with Tree(servers.hosts, NAMESPACE, options.session_timeout) as tree:
            _finish(servers, tree, fleet, told, progress)
        events = history.read(*(path for path in paths if path.exists()))
        if errors := (folder / "workers.log").read_text(errors="replace"):
            progress(f"the workers' log ends with:\n{errors[-3000:]}")
        return events


@contextmanager
def _silenced(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _finish(
    servers: Site, tree: Tree, fleet: Fleet, told: History, progress: Callable[[str], None]
) -> None:
    """Let all finish, count what they leave while their sessions live, and end them."""
    for worker in fleet.workers:
        worker.order("quiesce")
    grace = max(TIMEOUTS) + END_SECONDS
    _until(lambda: all(worker.quiet or not worker.running for worker in fleet.workers), grace)
    for worker in fleet.workers:
        if not worker.quiet:
            told.say("stuck" if worker.running else "died", pid=worker.pid)
            worker.kill_stuck()
            told.say("killed", pid=worker.pid)
    _until(lambda: not _nodes(tree) and not servers.watches(), CLEAN_UP_SECONDS)
    nodes, watches = _nodes(tree), servers.watches()
    told.say("left", nodes=nodes, watches=watches)
    progress(f"left behind: {len(nodes)} nodes, {watches} watches")
    fleet.end(END_SECONDS)


def _nodes(tree: Tree) -> list[str]:
    """Return the lock nodes that are there."""
    parents = [f"{NAMESPACE}/{name}" for name in tree.names(NAMESPACE)]
    return [f"{parent}/{name}" for parent in parents for name in tree.names(parent)]


def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until it is so, but no longer than so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
