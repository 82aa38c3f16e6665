"""A process that takes slots of a limit, as the documentation of its library says.

Run as ``python -m benchmarks.contenders.slots LIBRARY ROLE HOSTS KEY``. The role ``hold`` takes one
slot, says so, and keeps it. The role ``use`` takes all slots that it can get, each for half a
second, again and again, as the tasks of a busy site do. It says whenever it has more of them at a
time than ever before:

    inside SLOTS AT      a number, and seconds of CLOCK_MONOTONIC, one clock for all processes
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import django
from django.conf import settings
from redis import Redis

#: How long a task of a busy site works, in seconds.
WORK = 0.5
#: The pause between attempts, in seconds, where a library leaves that to its user.
PAUSE = 0.1

#: A block of code in a slot.
Slot: TypeAlias = Callable[[], AbstractContextManager[object]]


def say(*words: object) -> None:
    """Write one line in one system call."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Census:
    """Counts who is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self._most = 0
        say("inside", 0, time.monotonic())

    @contextmanager
    def inside(self) -> Iterator[None]:
        with self._lock:
            self._now += 1
            if self._now > self._most:
                self._most = self._now
                say("inside", self._now, time.monotonic())
        yield
        with self._lock:
            self._now -= 1


def hold(slot: Slot) -> None:
    """Take a slot and keep it."""
    with slot():
        say("holds")
        threading.Event().wait()


def use(slot: Slot, limit: int) -> None:
    """Take slots again and again."""
    census = Census()

    def work() -> None:
        while True:
            with slot(), census.inside():
                time.sleep(WORK)

    threads = [threading.Thread(target=work) for _ in range(limit)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def patiently(slot: Slot, busy: type[Exception]) -> Iterator[None]:
    """Try until there is a slot."""
    while True:
        block = slot()
        try:
            block.__enter__()
        except busy:
            time.sleep(PAUSE)
        else:
            break
    try:
        yield
    finally:
        block.__exit__(None, None, None)


def distlock(hosts: str, key: str, limit: int, *, reaper: bool) -> Slot:
    settings.configure(INSTALLED_APPS=["distlock"], DISTLOCK={"default": {"HOSTS": hosts}})
    django.setup()
    from distlock import zk_semaphore
    from distlock.session.reaper import start_session_reaper

    if reaper:
        start_session_reaper()
    return lambda: zk_semaphore(key, limit, timeout=60)


def dramatiq(url: str, key: str, limit: int, **options: Any) -> Slot:
    from dramatiq import RateLimitExceeded
    from dramatiq.rate_limits import ConcurrentRateLimiter
    from dramatiq.rate_limits.backends import RedisBackend

    limiter = ConcurrentRateLimiter(RedisBackend(url=url), key, limit=limit, **options)
    return lambda: patiently(limiter.acquire, RateLimitExceeded)


def concurrency_limit(url: str, key: str, limit: int) -> Slot:
    import concurrency_limit as library

    of = library.LimitConfiguration(key=key, limit=limit)
    at = library.RedisConfiguration(connection_pool=Redis.from_url(url).connection_pool)
    return lambda: patiently(
        lambda: library.limit(at, of),
        library.ConcurrencyLimitExceededException,
    )


def redis_semaphore(url: str, key: str, limit: int) -> Slot:
    from redis_semaphore import Semaphore, SemaphoreConfig

    client, config = Redis.from_url(url), SemaphoreConfig(name=key, limit=limit)
    return lambda: Semaphore(client, config)


def huey(url: str, key: str, *_: int) -> Slot:
    from huey import RedisHuey
    from huey.exceptions import TaskLockedException

    app = RedisHuey(key, url=url)
    return lambda: patiently(lambda: app.lock_task(key), TaskLockedException)


def redis_lock(url: str, key: str, *_: int) -> Slot:
    client = Redis.from_url(url)
    return lambda: client.lock(key)


def portalocker(url: str, key: str, *_: int) -> Slot:
    from portalocker import AlreadyLocked, RedisLock

    client = Redis.from_url(url, decode_responses=True, health_check_interval=10)
    return lambda: patiently(lambda: RedisLock(key, connection=client), AlreadyLocked)


async def docket(role: str, url: str, key: str, limit: int) -> None:
    """Work as a worker of Docket, in which only a task has a slot."""
    from docket import ConcurrencyLimit, CurrentDocket, Docket, Worker

    async def task(
        slot: Any = ConcurrencyLimit(max_concurrent=limit),  # noqa: ARG001, B008 - as it is written
        here: Any = CurrentDocket(),  # noqa: B008
    ) -> None:
        if role == "hold":
            say("holds")
            await asyncio.Event().wait()
        with census.inside():
            await asyncio.sleep(WORK)
        await here.add(task)()

    async with Docket(name=key, url=url) as own:
        own.register(task)
        if role == "hold":
            await own.add(task)()
            async with Worker(own, concurrency=1) as worker:
                await worker.run_forever()
        census = Census()
        for _ in range(limit):
            await own.add(task)()
        async with Worker(own) as worker:
            await worker.run_forever()


class Library(NamedTuple):
    """A library under comparison.

    :ivar package: the distribution whose version is told; empty for ours
    :ivar rule: what ends the slot of a killed process, at the library's defaults
    :ivar slot: makes a slot from the server's address, a key and the limit; Docket has none
    """

    name: str
    package: str
    limit: int
    rule: str
    slot: Callable[[str, str, int], Slot] | None


def _ours(server: str, *, reaper: bool) -> Library:
    name = f"`zk_semaphore`, {server}{'' if reaper else ', no session reaper'}"
    rule = "the session reaper, at once" if reaper else "its session, 10 s after the last contact"
    return Library(name, "", 3, rule, partial(distlock, reaper=reaper))


LIBRARIES = {
    "zookeeper": _ours("ZooKeeper", reaper=True),
    "zookeeper-alone": _ours("ZooKeeper", reaper=False),
    "redis": _ours("Redis", reaper=True),
    "redis-alone": _ours("Redis", reaper=False),
    "portalocker": Library(
        "portalocker, `RedisLock`", "portalocker", 1, "its connection, at once", portalocker
    ),
    "redis-semaphore": Library(
        "py-redis-semaphore, `Semaphore`",
        "py-redis-semaphore",
        3,
        "its lease, 30 s after the last heartbeat",
        redis_semaphore,
    ),
    "docket": Library(
        "pydocket, `ConcurrencyLimit`",
        "pydocket",
        3,
        "its lease, 300 s after the last heartbeat",
        None,
    ),
    "dramatiq": Library(
        "dramatiq, `ConcurrentRateLimiter`",
        "dramatiq",
        3,
        "900 s in which nobody takes or frees a slot",
        dramatiq,
    ),
    "dramatiq-10": Library(
        "the same with `ttl=10_000`",
        "dramatiq",
        3,
        "10 s in which nobody takes or frees a slot",
        partial(dramatiq, ttl=10_000),
    ),
    "concurrency-limit": Library(
        "concurrency-limit, `limit`",
        "concurrency-limit",
        3,
        "60 s in which nobody takes a slot",
        concurrency_limit,
    ),
    "huey": Library("huey, `lock_task`", "huey", 1, "nothing, without a `ttl=`", huey),
    "redis-py": Library(
        "redis-py, `Lock`", "redis", 1, "nothing, without a `timeout=`", redis_lock
    ),
}


def main(name: str, role: str, hosts: str, key: str) -> None:
    library = LIBRARIES[name]
    if library.slot is None:
        asyncio.run(docket(role, hosts, key, library.limit))
        return
    slot = library.slot(hosts, key, library.limit)
    if role == "hold":
        hold(slot)
    else:
        use(slot, library.limit)


if __name__ == "__main__":
    main(*sys.argv[1:])
