"""A process with a session of distlock, and what stands for threads and clocks in it."""

from __future__ import annotations

import logging
import random
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from distlock.conf import Configuration
from distlock.contenders import contender, grant, waiting
from distlock.engine import deadline
from distlock.engine.guard import guarded
from distlock.engine.zookeeper import connection
from distlock.keys import znodes
from distlock.session import guaranteed_delete, requests, session, watches
from tests.kit.fake_session import InOrder

from .client import Client
from .world import Host, Thread, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from random import Random

    from .links import Links
    from .server import Server
    from .world import Steps, World

NAMESPACE: Final = "/d"


class Process(Host):
    """A process: its session, and the threads that use it."""

    def __init__(
        self, name: str, random: Random, *, links: Links, servers: list[Server], conf: Configuration
    ) -> None:
        # NTP slews a clock by half a thousandth, so two differ by one at most.
        super().__init__(links.world, name, random, random.uniform(0.9995, 1.0005))
        self.links = links
        self.servers = servers
        self.conf = conf
        #: How far its wall clock is off, which somebody may set.
        self.wall = 0.0
        self.threads: list[Thread] = []
        self.session: Any = None
        self.now("main", self._begin)

    def _begin(self) -> None:
        made = self.session = session.Session(self.conf)
        # In the order of their coming: that of a set is not the same in each run.
        made.contenders = InOrder()  # type: ignore[assignment]
        made.heartbeat._beneficiaries = InOrder()  # type: ignore[assignment]
        made._in_flight = InOrder()  # type: ignore[assignment]

    def spawn(self, name: str, steps: Steps) -> Thread:
        """Start a thread."""
        thread = Thread(self, name, steps)
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
    def client(self) -> Client:
        client: Client = self.session._client
        return client


class _Bell:
    """Wakes the thread that waits for it."""

    def __init__(self) -> None:
        self.rung = False
        self.thread: Thread | None = None

    def ring(self) -> None:
        self.rung = True
        if self.thread is not None:
            self.thread.wake()


def _beating(heartbeat: Any, world: World) -> Steps:
    """Drive a heartbeat's waits."""
    for bell, seconds in heartbeat._beats():
        if not bell.rung:
            bell.thread = world.thread
            yield seconds
        bell.rung, bell.thread = False, None


@contextmanager
def simulated(world: World, random: Random) -> Iterator[None]:
    """Let distlock's clocks and threads be those of the process that runs now."""

    def now() -> float:
        seconds: float = world.here.clock()
        return seconds

    def start(heartbeat: Any) -> None:
        if heartbeat._thread is None:
            heartbeat._thread = world.here.spawn("heartbeat", _beating(heartbeat, world))

    def call_later(seconds: float, method: Callable[[], None]) -> None:
        world.here.after(seconds, "timer", guarded, method)

    def identity() -> int:
        return id(world.thread)

    time = SimpleNamespace(monotonic=now, time=lambda: now() + world.here.wall)
    replaced: list[tuple[Any, str, Any]] = [
        *[(one, "now", now) for one in (deadline, grant, session, requests, connection)],
        *[
            (one, "time", time)
            for one in (contender, grant, waiting, session, guaranteed_delete, connection)
        ],
        *[(one, "call_later", call_later) for one in (contender, grant, guaranteed_delete)],
        (session, "client_of", lambda conf, changed: Client(world.here, conf, changed)),
        (session, "get_ident", identity),
        (watches, "threading", SimpleNamespace(get_ident=identity)),
        (watches, "set", InOrder),
        (waiting, "ANSWER_SECONDS", 0.4),  # the tests have more
        (deadline, "Bell", _Bell),
        (deadline.Heartbeat, "_start", start),
        (znodes, "_random", random),
    ]
    logger = logging.getLogger("distlock")
    with patch.multiple(logger, handlers=[_Bugs()], propagate=False, level=logging.ERROR):
        logger.manager._clear_cache()  # type: ignore[attr-defined]
        with replacing(replaced):
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
    """Return the settings of all processes."""
    hosts = ",".join(f"server{number}:2181" for number in range(servers))
    return Configuration(
        hosts=hosts, namespace=NAMESPACE, session_timeout=timeout, strict=strict, timeout=None
    )


def stream(root: Random) -> Random:
    """Return a source of random numbers of its own, which depends on nothing but the seed."""
    return random.Random(root.getrandbits(64))  # noqa: S311 - it repeats itself
