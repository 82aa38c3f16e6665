"""Redis as an engine; `distlock.engine.protocol.Engine` tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.engine.protocol import Finding, failure, ok, warning

from .address import address
from .client import RedisClient
from .requests import report
from .server import facts
from .settings import is_sentinel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.engine.configuration import Configuration

__all__ = ["advice", "client", "lend", "looks", "report", "servers", "shown"]

#: redis-py's client cannot share a connection.
lend = None


def client(conf: Configuration, changed: Callable[[bool, int], None]) -> RedisClient:
    return RedisClient(conf, changed)


def shown(conf: Configuration) -> str:
    return address(conf.hosts).shown


# --- what `doctor` looks at: what a restart, a full memory or a failover does to locks -----------


def servers(conf: Configuration, timeout: float) -> tuple[bool, list[Finding]]:
    told, subject = facts(conf, timeout), f"server {shown(conf)}"
    if told.error:
        advice = "Is it running, are HOSTS right, does a firewall stand between?"
        return False, [failure(subject, f"does not serve: {told.error}.", advice)]
    message = f"a round trip takes {told.seconds * 1000:.2f} ms"
    if not told.version:
        return True, [ok(subject, f"{message}; this user may not see more (INFO)")]
    message = f"{told.role}, {told.version}, {message}"
    advice = "Name the primary in HOSTS, or the Sentinels: a replica has no locks."
    replica = told.role == "replica"
    found = [failure(subject, message, advice) if replica else ok(subject, message)]

    limit, policy = told.maxmemory, told.policy
    if policy is not None and limit is not None:
        message = f"maxmemory {limit or 'no limit'}, maxmemory-policy {policy}"
        if policy == "noeviction" or policy.startswith("volatile-"):  # keys of locks do not expire
            found.append(ok("memory", message))
        else:
            message += ": the server may evict a lock that is held, and give it to somebody else"
            advice = (
                "Set maxmemory-policy noeviction, or use another server for locks than for a cache."
            )
            found.append(
                failure("memory", f"{message}.", advice)
                if limit
                else warning("memory", f"{message} once it has a limit.", advice)
            )

    if told.appendonly:
        found.append(ok("persistence", "appendonly yes"))
    elif told.appendonly is not None:
        message = (
            "appendonly no: a restart forgets locks, so their holders lose them, and nobody gets "
            "a lock for one session timeout."
        )
        found.append(warning("persistence", message, "Set appendonly yes."))

    connected = told.replicas
    message = f"{connected} connected, REPLICAS is {conf.replicas}"
    if not conf.replicas and (connected or is_sentinel(conf.hosts)):
        message += (
            ": if one of them takes over, it may not have a lock, a lease may have two owners for "
            "the rest of its time, and a primary that is cut off may go on confirming heartbeats."
        )
        advice = (
            "Set REPLICAS to the number of replicas that must have a lock before it counts, or "
            "make none of them the primary."
        )
        found.append(warning("replicas", message, advice))
    elif connected is not None and connected < conf.replicas:
        advice = "Start the missing replicas, or lower REPLICAS."
        found.append(failure("replicas", f"{message}: no lock is granted.", advice))
    elif connected is not None:
        found.append(ok("replicas", message))
    return True, found


def looks(conf: Configuration, timeout: float, seconds: float) -> Iterator[Finding]:
    yield from ()


def advice(conf: Configuration, right: str) -> str:
    return "The message says what the server, or the user in HOSTS, does not do."
