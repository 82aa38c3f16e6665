"""A process with a session of distlock, and what stands for threads and clocks in it."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from greenlet import GreenletExit

import distlock.conf
from distlock import process as distlocks_process
from distlock.conf import Configuration
from distlock.engine import calls, deadline, hosts, timer
from distlock.engine.guard import guarded
from distlock.engine.redis import client as redis_client
from distlock.keys import znodes
from distlock.lease import hold as lease_hold
from distlock.locks import held_permits
from distlock.session import lease_clock, patience, registry
from tests.kit.fake_session import InOrder

from . import redis_server
from .client import Client
from .world import Host, Thread, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from .links import Links
    from .server import Server
    from .world import World

NAMESPACE: Final = "/d"
#: How often a thread that is woken goes on before the one that wakes it.
AT_ONCE: Final = 0.1
#: Where it matters in which order a set is gone through.
_ORDERED: Final = (
    "distlock.session",
    "distlock.contenders",
    "distlock.engine.deadline",
    "distlock.engine.redis",
    "distlock.locks.leader",
)


class Process(Host):
    """A process: its session, and the threads that use it.

    :param beside: one on the same machine, which has the same clock
    """

    def __init__(
        self,
        name: str,
        random: Random,
        *,
        links: Links,
        servers: list[Server],
        conf: Configuration,
        beside: Process | None = None,
        alias: str = "",
    ) -> None:
        # NTP slews a clock by half a thousandth, so two differ by one at most.
        super().__init__(links.world, name, random, random.uniform(0.9995, 1.0005))
        self.machine = name
        if beside is not None:
            self.rate, self._began, self.machine = beside.rate, beside._began, beside.machine
        self.links = links
        self.servers = servers
        #: All processes share the modules of distlock: each has an alias of its own there.
        self.alias = alias or name
        self.conf = replace(conf, alias=self.alias)
        #: How far its wall clock is off, which somebody may set.
        self.wall = 0.0
        self.threads: list[Thread] = []
        #: When it has first looked at a lease, by the true time.
        self.looked_at: float | None = None
        self.session: Any = None
        self.now("main", self.begin)

    def begin(self) -> None:
        """Begin a session."""
        self.session = registry.session_for(self.alias)

    def spawn(self, name: str, run: Callable[[], Any]) -> Thread:
        """Start a thread."""
        thread = Thread(self, name, run)
        self.threads.append(thread)
        return thread

    def kill(self) -> None:
        """End at once; the kernel closes its connections."""
        self.die()
        self.links.close_all(self)

    @property
    def runs(self) -> bool:
        return not (self.stopped or self.dead)

    @property
    def client(self) -> Any:
        return self.session._client

    @property
    def server(self) -> Any:
        """The server that it is connected to, or None."""
        return getattr(self.client, "server_host", self.servers[0])

    @property
    def watchers(self) -> list[Any]:
        """What its client keeps of watches."""
        client = self.client
        by_path = getattr(client, "watchers", None)
        return list(
            {**client._data_watchers, **client._child_watchers} if by_path is None else by_path
        )


class Loop(asyncio.BaseEventLoop):
    """The event loop of the thread that runs now."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._own: Thread = world.thread
        super().__init__()
        self._selector = self

    def run(self, steps: list[Coroutine[Any, Any, Any]]) -> None:
        """Run a task for each to its end."""
        self.set_exception_handler(lambda *_: None)
        tasks = [self.create_task(one) for one in steps]
        try:
            self.run_until_complete(asyncio.gather(*tasks))
        except BaseException:
            self._world.over = True
            while left := [one for one in tasks if not one.done()]:
                for one in left:
                    one.cancel()
                with suppress(GreenletExit):
                    self.run_until_complete(asyncio.wait(left))
            raise
        finally:
            self.close()

    def time(self) -> float:
        return self._own.host.clock()

    def select(self, timeout: float | None) -> list[Any]:
        if timeout != 0:
            self._own.wait(timeout)
        return []

    def _process_events(self, _: list[Any]) -> None:
        """There are no files."""

    def _write_to_self(self) -> None:
        self._own.wake()


def to_the_end(steps: Coroutine[Any, Any, Any]) -> None:
    """Run code that waits for nothing but what its thread waits for."""
    with suppress(StopIteration):
        steps.send(None)


class _Latch:
    """What a thread waits for until another one opens it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._opened = False
        self._waiting: Thread | None = None

    def open(self) -> None:
        self._opened = True
        if self._waiting is not None:
            self._waiting.wake()

    def wait(self, seconds: float | None = None) -> None:
        if not self._opened:
            self._waiting = self._world.thread
            self._world.thread.wait(seconds)
            self._waiting = None


class _Bell(_Latch):
    """One that closes behind who waits."""

    ring = _Latch.open

    def wait(self, seconds: float | None = None) -> None:
        super().wait(seconds)
        self._opened = False


class _NeverOurs:
    """In place of what knows of a thread whether it is distlock's."""

    ours = property(lambda _: False, lambda *_: None)


@contextmanager
def simulated(world: World, random: Random) -> Iterator[None]:
    """Let distlock's clocks and threads be those of the process that runs now."""

    def now() -> float:
        seconds: float = world.here.clock()
        return seconds

    def sleep(seconds: float) -> None:
        world.thread.wait(seconds)

    def call_later(seconds: float, method: Callable[[], None]) -> None:
        world.here.after(seconds, "timer", guarded, method)

    def identity() -> int:
        return id(world.thread)

    def this_thread() -> Any:
        return getattr(world.thread, "known_as", world.thread)

    def run(call: Any) -> Any:
        thread = world.thread

        def wake() -> None:
            at_once = world.thread is not thread and thread.host.random.random() < AT_ONCE
            (thread.wake_at_once if at_once else thread.wake)()

        try:
            return thread.drive(call.steps(wake))
        except BaseException:
            call._undo()
            raise

    in_place = {
        time: _like(
            time,
            monotonic=now,
            time=lambda: now() + world.here.wall,
            sleep=sleep,
        ),
        threading: _like(threading, get_ident=identity, current_thread=this_thread),
        sys.modules["random"]: random,
        threading.get_ident: identity,
        threading.current_thread: this_thread,
        deadline.now: now,
        deadline.Bell: lambda: _Bell(world),
        timer.call_later: call_later,
        calls.Latch: lambda: _Latch(world),
        calls.start_thread: lambda thread: world.here.spawn(thread.name, thread.run),
        calls.this_thread: _NeverOurs(),
        uuid.uuid4: lambda: uuid.UUID(int=random.getrandbits(128)),
        hosts.client_of: lambda conf, changed: (
            redis_client.RedisClient(conf, changed)
            if "://" in conf.hosts
            else Client(world.here, conf, changed)
        ),
        lease_clock.this_machine: lambda: world.here.machine,
        distlock.conf.configuration: lambda _="default": world.here.conf,
        **redis_server.in_place(world, random),
    }
    replaced = [
        *_everywhere(in_place),
        (calls.Call, "run", run),
        (patience, "ANSWER_SECONDS", 0.4),  # the tests have more
        (znodes, "_random", random),
        (redis_client, "address", lambda _: redis_server.Address(world)),
        (distlocks_process, "at_end_of_child", lambda *_, **__: None),
    ]
    hooks = sys.get_asyncgen_hooks()
    gc.disable()  # or weak references would end at another time in each run
    try:
        with _quiet(), replacing(replaced):
            try:
                yield
            finally:
                _forget(world)
    finally:
        sys.set_asyncgen_hooks(*hooks)
        gc.enable()


def _like(module: Any, **others: Any) -> Any:
    return SimpleNamespace(**{**vars(module), **others})


def _everywhere(in_place: dict[Any, Any]) -> Iterator[tuple[Any, str, Any]]:
    """Find what distlock's modules have imported, and let their sets be in the order of coming."""
    by_id = {id(one): other for one, other in in_place.items()}
    for name, module in list(sys.modules.items()):
        if name == "distlock" or name.startswith("distlock."):
            for imported, value in list(vars(module).items()):
                if id(value) in by_id:
                    yield module, imported, by_id[id(value)]
            if name.startswith(_ORDERED):
                yield module, "set", InOrder


def _forget(world: World) -> None:
    """End all threads, and forget what distlock's modules have kept."""
    world.over = True
    for one in world.hosts:
        one.die()
        if isinstance(one, Process):
            one.client.stopped = True
    for one in world.hosts:
        for thread in getattr(one, "threads", ()):
            thread.end()
    registry._sessions.clear()
    lease_hold._forget_all()
    lease_hold._blocks.clear()
    held_permits.clear()


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("distlock")
    with patch.multiple(logger, handlers=[_Bugs()], propagate=False, level=logging.ERROR):
        logger.manager._clear_cache()  # type: ignore[attr-defined]
        yield
    logger.manager._clear_cache()  # type: ignore[attr-defined]


_NOTHING: Final = object()


@contextmanager
def replacing(replaced: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Give objects other attributes: each object, the name, and the value."""
    kept = [(one, name, vars(one).get(name, _NOTHING)) for one, name, _ in replaced]
    try:
        for one, name, value in replaced:
            setattr(one, name, value)
        yield
    finally:
        for one, name, value in kept:
            if value is _NOTHING:
                delattr(one, name)
            else:
                setattr(one, name, value)


class _Bugs(logging.Handler):
    """Raises what distlock calls a bug."""

    def emit(self, record: logging.LogRecord) -> None:
        if "bug in distlock" in record.getMessage():
            error = record.exc_info[1] if record.exc_info else None
            raise Violation(f"a bug in distlock: {error!r}") from error


def configuration(servers: int, timeout: float, *, strict: bool) -> Configuration:
    """Return the settings of all processes; without servers of ZooKeeper for one of Redis."""
    hosts = ",".join(f"server{number}:2181" for number in range(servers)) or "redis://server0"
    return Configuration(
        hosts=hosts, namespace=NAMESPACE, session_timeout=timeout, strict=strict, timeout=None
    )


def stream(root: Random) -> Random:
    """Return a source of random numbers of its own, which depends on nothing but the seed."""
    return Random(root.getrandbits(64))  # noqa: S311 - it repeats itself
