"""What is done, and by whom: the works, and the locks under comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

#: Where a lock is kept.
Kept = Literal["ZooKeeper", "Redis", "PostgreSQL"]


@dataclass(frozen=True)
class Contender:
    """A lock under comparison.

    :ivar witnessed: whether its holders go through the witness alone; a mere exchange of requests
        is no lock, and a decorator has nothing between acquire and release
    """

    name: str
    library: str
    kept: Kept
    language: Literal["Python", "Java"] = "Python"
    witnessed: bool = True


DISTLOCK = Contender("distlock", "distlock", "ZooKeeper")
HANDOFF = Contender("distlock, handoff=50", "handoff", "ZooKeeper")
DECORATED = Contender("distlock, @zk_locked", "decorated", "ZooKeeper", witnessed=False)
ON_REDIS = Contender("distlock on Redis", "distlock-redis", "Redis")
KAZOO = Contender("kazoo Lock", "kazoo", "ZooKeeper")
CURATOR = Contender("Curator", "curator", "ZooKeeper", language="Java")
RAW = Contender("create, delete", "raw", "ZooKeeper", witnessed=False)
FLOOR = Contender("bare client", "floor", "ZooKeeper", witnessed=False)
REDIS = Contender("redis-py Lock", "redis-py", "Redis")
NOTIFIED = Contender("python-redis-lock", "python-redis-lock", "Redis")
PGLOCK = Contender("django-pglock", "django-pglock", "PostgreSQL")

LOCKS = (DISTLOCK, ON_REDIS, KAZOO, CURATOR, REDIS, NOTIFIED, PGLOCK)
#: All of them, in the order of the tables.
ALL = (DISTLOCK, HANDOFF, DECORATED, ON_REDIS, KAZOO, CURATOR, RAW, FLOOR, REDIS, NOTIFIED, PGLOCK)
CONTENDED = (DISTLOCK, HANDOFF, ON_REDIS, KAZOO, CURATOR, REDIS, NOTIFIED, PGLOCK)


@dataclass(frozen=True)
class Work:
    """What each contender does in each round.

    :ivar figure: what is shown of it: milliseconds a cycle, acquisitions per second, or the
        milliseconds that the lock is nobody's at a hand-off
    :ivar count: how often each thread takes the lock, 0 for as long as the time lasts
    :ivar hold: seconds
    :ivar refused: whether another process holds it, and the contenders only try
    :ivar delay: how much later everything arrives on the link, each way, in seconds
    """

    name: str
    title: str
    contenders: tuple[Contender, ...]
    figure: Literal["ms", "per second", "idle ms"] = "per second"
    processes: int = 1
    threads: int = 1
    keys: int = 1
    count: int = 0
    hold: float = 0.0
    refused: bool = False
    delay: float = 0.0

    @property
    def more_is_better(self) -> bool:
        return self.figure == "per second"

    @property
    def line(self) -> bool:
        """Whether several stand in one line, so that its fairness is a question."""
        return self.keys == 1 and self.processes * self.threads > 1 and not self.count


UNCONTENDED = Work(
    "uncontended",
    "Uncontended: acquire and release",
    (DISTLOCK, DECORATED, ON_REDIS, KAZOO, CURATOR, RAW, FLOOR, REDIS, NOTIFIED, PGLOCK),
    figure="ms",
)
THREADS = Work("threads", "8 threads of one process, one key", CONTENDED, threads=8)
PROCESSES = Work("processes", "8 processes, one key", CONTENDED, processes=8)
BOTH = Work("4x4", "4 processes of 4 threads, one key", CONTENDED, processes=4, threads=4)
KEYS_10 = Work("4x4, 10 keys", "The same, 10 keys", CONTENDED, processes=4, threads=4, keys=10)
KEYS_100 = Work("4x4, 100 keys", "The same, 100 keys", CONTENDED, processes=4, threads=4, keys=100)
HANDED_ON = Work(
    "2 ms",
    "8 processes at once, each holds it for 2 ms",
    LOCKS,
    figure="idle ms",
    processes=8,
    count=1,
    hold=0.002,
)
REFUSED = Work("refused", "`acquire(blocking=False)`, refused", LOCKS, figure="ms", refused=True)
ENSEMBLE = Work(
    "ensemble",
    "Three servers, uncontended",
    (DISTLOCK, KAZOO, CURATOR, RAW),
    figure="ms",
)
ENSEMBLE_THREADS = Work(
    "ensemble, threads",
    "Three servers, 8 threads of one process, one key",
    (DISTLOCK, HANDOFF, KAZOO, CURATOR),
    threads=8,
)

_BEHIND_LINK = (DISTLOCK, KAZOO, CURATOR)
LINK = replace(
    UNCONTENDED,
    name="link",
    title="A link of 1 ms each way, uncontended",
    contenders=(*_BEHIND_LINK, FLOOR),
    delay=0.001,
)
LINK_THREADS = replace(
    THREADS,
    name="link, threads",
    title="A link of 1 ms each way, 8 threads of one process, one key",
    contenders=_BEHIND_LINK,
    delay=0.001,
)
LINK_PROCESSES = replace(
    PROCESSES,
    name="link, processes",
    title="A link of 1 ms each way, 8 processes, one key",
    contenders=_BEHIND_LINK,
    delay=0.001,
)
LONG_LINK_PROCESSES = replace(
    LINK_PROCESSES,
    name="long link, processes",
    title="A link of 5 ms each way, 8 processes, one key",
    delay=0.005,
)

#: Where they are done: over a slow link, on the same machine, on three servers.
WORKS = {
    "link": (LINK, LINK_THREADS, LINK_PROCESSES, LONG_LINK_PROCESSES),
    "single": (UNCONTENDED, THREADS, PROCESSES, BOTH, KEYS_10, KEYS_100, HANDED_ON, REFUSED),
    "ensemble": (ENSEMBLE, ENSEMBLE_THREADS),
}
#: Whose time is compared: so many waiters of one key, each with a session of its own.
CROWDS = (10, 1000)
