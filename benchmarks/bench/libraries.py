"""The locks under comparison that are Python's, each used as its documentation says.

A library is imported, and connects, when it is first asked for a lock. Every thread gets lock
objects of its own, except from distlock, whose lock objects may be shared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple
from uuid import uuid4

import django
from django.conf import settings

from benchmarks.bench.floor import BareClient, BareLock

#: Where locks end by an expiry: later than any run ends, in seconds.
EXPIRY = 60
#: Of every ZooKeeper session, Java's too, in seconds.
SESSION_TIMEOUT = 10


class Lock(NamedTuple):
    """What a contender calls."""

    acquire: Callable[[], object]
    release: Callable[[], object]
    #: Takes the lock only if it is free; returns whether it did.
    attempt: Callable[[], object]


def configure(servers: dict[str, Any]) -> None:
    """Set Django up.

    :param servers: ``zookeeper``: hosts; ``redis``: a URL; ``postgres``: a value of `DATABASES`;
        the last two only where they are asked for
    """
    installed = ["distlock"]
    if servers.get("postgres"):
        installed += ["pgactivity", "pglock"]
    options = {"NAMESPACE": "/bench/distlock", "SESSION_TIMEOUT": SESSION_TIMEOUT}
    aliases = {"default": {"HOSTS": servers["zookeeper"], **options}}
    if servers.get("redis"):
        aliases["redis"] = {"HOSTS": servers["redis"], **options}
    settings.configure(
        INSTALLED_APPS=installed,
        DATABASES=servers.get("postgres", {}),
        DISTLOCK=aliases,
        LOGGING_CONFIG=None,
    )
    django.setup()


def distlock(**options: Any) -> Callable[[str], Lock]:
    from distlock import zk_lock  # noqa: PLC0415 - a library under comparison

    def lock(key: str) -> Lock:
        mutex = zk_lock(key, timeout=None, **options)
        return Lock(mutex.acquire, mutex.release, partial(mutex.acquire, blocking=False))

    return lock


def decorated() -> Callable[[str], Lock]:
    """`zk_locked`: a call of a function that does nothing is acquire and release in one."""
    from distlock import zk_locked  # noqa: PLC0415 - a library under comparison

    @zk_locked("<key>", timeout=None)
    def nothing(key: str) -> None: ...

    def lock(key: str) -> Lock:
        return Lock(partial(nothing, key), _nothing, _nothing)

    return lock


def _nothing() -> None: ...


class Kazoo:
    """kazoo's `Lock`, and its bare requests."""

    def __init__(self, hosts: str) -> None:
        from kazoo.client import KazooClient  # noqa: PLC0415 - a library under comparison

        self._client = KazooClient(hosts, timeout=SESSION_TIMEOUT)
        self._client.start()

    def lock(self, key: str) -> Lock:
        lock = self._client.Lock(f"/bench/kazoo/{key}")
        return Lock(lock.acquire, lock.release, partial(lock.acquire, blocking=False))

    def bare(self, key: str) -> Lock:
        """Create a node and delete it, each waited for: the two writes of a lock, and no lock."""
        client, parent = self._client, f"/bench/raw/{key}"
        client.ensure_path(parent)
        prefix = f"{parent}/_c_{uuid4()}-lock-"
        made: list[str] = []

        def acquire() -> None:
            made.append(client.create(prefix, b"", ephemeral=True, sequence=True))

        return Lock(acquire, lambda: client.delete(made.pop()), _nothing)

    def floor(self, key: str) -> Lock:
        """Send what a lock sends by a client that does nothing else."""
        parent = f"/bench/floor/{key}"
        self._client.ensure_path(parent)
        lock = BareLock(self._floor, parent)
        return Lock(lock.acquire, lock.release, _nothing)

    @cached_property
    def _floor(self) -> BareClient:
        host, port = self._client.hosts[0]
        return BareClient(host, port, SESSION_TIMEOUT)


class Redis:
    """redis-py's own `Lock`, which asks again every tenth of a second, and python-redis-lock."""

    def __init__(self, url: str) -> None:
        import redis  # noqa: PLC0415 - a library under comparison

        self._client = redis.Redis.from_url(url)

    def lock(self, key: str) -> Lock:
        lock = self._client.lock(f"redis-py:{key}", timeout=EXPIRY)
        return Lock(lock.acquire, lock.release, partial(lock.acquire, blocking=False))

    def notified(self, key: str) -> Lock:
        """python-redis-lock wakes a waiter through a list."""
        import redis_lock  # noqa: PLC0415 - a library under comparison

        lock = redis_lock.Lock(self._client, key, expire=EXPIRY)
        return Lock(lock.acquire, lock.release, partial(lock.acquire, blocking=False))


def pglock(key: str) -> Lock:
    """django-pglock: an advisory lock of the thread's own database connection."""
    import pglock as library  # noqa: PLC0415 - a library under comparison

    lock, attempt = library.advisory(key), library.advisory(key, timeout=0)
    return Lock(lock.acquire, lock.release, attempt.acquire)


class Libraries:
    """Makes locks by the name of the library, and what they share in a process once."""

    def __init__(self, servers: dict[str, Any]) -> None:
        configure(servers)
        self._servers = servers
        self._makers: dict[str, Callable[[str], Lock]] = {}

    def lock(self, library: str, key: str) -> Lock:
        """Return a lock for the calling thread."""
        if library not in self._makers:
            self._makers[library] = self._maker(library)
        return self._makers[library](key)

    def _maker(self, library: str) -> Callable[[str], Lock]:
        makers: dict[str, Callable[[], Callable[[str], Lock]]] = {
            "distlock": distlock,
            "handoff": partial(distlock, handoff=50),
            "distlock-redis": partial(distlock, using="redis"),
            "decorated": decorated,
            "kazoo": lambda: self._kazoo.lock,
            "raw": lambda: self._kazoo.bare,
            "floor": lambda: self._kazoo.floor,
            "redis-py": lambda: self._redis.lock,
            "python-redis-lock": lambda: self._redis.notified,
            "django-pglock": lambda: pglock,
        }
        return makers[library]()

    @cached_property
    def _kazoo(self) -> Kazoo:
        return Kazoo(self._servers["zookeeper"])

    @cached_property
    def _redis(self) -> Redis:
        return Redis(self._servers["redis"])
