"""Looks at a Redis server: what a restart, a full memory or a failover does to the locks in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.conf.redis_urls import is_sentinel

from .finding import failure, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.conf import Configuration
    from distlock.engine.redis.server import Facts

    from .finding import Finding


def ask(conf: Configuration, timeout: float) -> tuple[bool, list[Finding]]:
    """Return whether the server serves us, and the findings on it.

    :param timeout: seconds for each step
    """
    from distlock.engine.redis.server import facts  # noqa: PLC0415 - of the extra [redis]

    found = facts(conf, timeout)
    member = found.member
    subject = f"server {member.address}"
    if member.error:
        return False, [
            failure(
                subject,
                f"does not serve: {member.error}.",
                "Is it running, are HOSTS right, does a firewall stand between?",
            )
        ]
    return True, [_server(subject, found), *_memory(found), *_disk(found), *_replicas(conf, found)]


def _server(subject: str, found: Facts) -> Finding:
    member = found.member
    milliseconds = f"a round trip takes {member.seconds * 1000:.2f} ms"
    if not member.version:
        return ok(subject, f"{milliseconds}; this user may not see more (INFO)")
    message = f"{member.role}, {member.version}, {milliseconds}"
    if member.role == "replica":
        return failure(
            subject, message, "Name the primary in HOSTS, or the Sentinels: a replica has no locks."
        )
    return ok(subject, message)


def _memory(found: Facts) -> Iterator[Finding]:
    if found.policy is None or found.maxmemory is None:
        return
    message = f"maxmemory {found.maxmemory or 'no limit'}, maxmemory-policy {found.policy}"
    # The keys of locks have no expiry.
    if found.policy == "noeviction" or found.policy.startswith("volatile-"):
        yield ok("memory", message)
        return
    told = failure if found.maxmemory else warning
    yield told(
        "memory",
        f"{message}: the server may evict a lock that is held, and give it to somebody else"
        f"{'' if found.maxmemory else ' once it has a limit'}.",
        "Set maxmemory-policy noeviction, or use another server for locks than for a cache.",
    )


def _disk(found: Facts) -> Iterator[Finding]:
    if found.appendonly:
        yield ok("persistence", "appendonly yes")
    elif found.appendonly is not None:
        yield warning(
            "persistence",
            "appendonly no: a restart forgets locks, so their holders lose them, and nobody gets "
            "a lock for one session timeout.",
            "Set appendonly yes.",
        )


def _replicas(conf: Configuration, found: Facts) -> Iterator[Finding]:
    message = f"{found.replicas} connected, REPLICAS is {conf.replicas}"
    if not conf.replicas and (found.replicas or is_sentinel(conf.hosts)):
        yield warning(
            "replicas",
            f"{message}: if one of them takes over, it may not have a lock, a lease may have two "
            "owners for the rest of its time, and a primary that is cut off may go on confirming "
            "heartbeats.",
            "Set REPLICAS to the number of replicas that must have a lock before it counts, or "
            "make none of them the primary.",
        )
    elif found.replicas is not None and found.replicas < conf.replicas:
        yield failure(
            "replicas",
            f"{message}: no lock is granted.",
            "Start the missing replicas, or lower REPLICAS.",
        )
    elif found.replicas is not None:
        yield ok("replicas", message)
