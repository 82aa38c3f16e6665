"""Asks a Redis server for what `doctor` shows, over a connection of its own."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoPermissionError, RedisError

from distlock.engine.protocol import Finding, failure, ok, warning
from distlock.text import printable

from .address import address, where
from .errors import refusal
from .settings import is_sentinel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlock.engine.protocol import Configuration


def servers(conf: Configuration, timeout: float) -> tuple[bool, list[Finding]]:
    """Look at the server of ``HOSTS``; each step has `timeout` seconds."""
    subject, connection = f"server {address(conf.hosts).shown}", None
    told: Mapping[str, str] = {}
    try:
        connection = address(conf.hosts).connect(timeout)
        asked = time.monotonic()
        _ask(connection, "PING")
        took = time.monotonic() - asked
        with suppress(NoPermissionError):
            told = _info(_ask(connection, "INFO"))
    except (RedisError, OSError, TypeError) as error:  # a refusal is an answer, too
        advice = "Is it running, are HOSTS right, does a firewall stand between?"
        return False, [failure(subject, f"does not serve: {_reason(conf, error)}.", advice)]
    finally:
        if connection is not None:
            connection.disconnect()
    message = f"a round trip takes {took * 1000:.2f} ms"
    version = _version(told)
    if not version:
        return True, [ok(subject, f"{message}; this user may not see more (INFO)")]
    replica = told.get("role") == "slave"
    message = f"{'replica' if replica else 'primary'}, {version}, {message}"
    advice = "Name the primary in HOSTS, or the Sentinels: a replica has no locks."
    found = [failure(subject, message, advice) if replica else ok(subject, message)]

    limit, policy = _number(told.get("maxmemory")), told.get("maxmemory_policy")
    if policy is not None and limit is not None:
        message = f"maxmemory {limit or 'no limit'}, maxmemory-policy {policy}"
        if policy == "noeviction" or policy.startswith("volatile-"):  # keys of locks do not expire
            found.append(ok("memory", message))
        else:
            message += ": the server may evict a lock that is held, and give it to somebody else"
            advice = (
                "Set maxmemory-policy noeviction, or use another server for locks than for a cache."
            )
            when = "" if limit else " once it has a limit"
            found.append((failure if limit else warning)("memory", f"{message}{when}.", advice))

    if told.get("aof_enabled") == "1":
        found.append(ok("persistence", "appendonly yes"))
    elif "aof_enabled" in told:
        message = (
            "appendonly no: a restart forgets locks, so their holders lose them, and nobody gets "
            "a lock for one session timeout."
        )
        found.append(warning("persistence", message, "Set appendonly yes."))

    connected = _number(told.get("connected_slaves"))
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


def _ask(connection: Any, *command: str) -> Any:
    connection.send_command(*command)
    return connection.read_response(disable_decoding=True)


def _info(answer: bytes) -> dict[str, str]:
    lines = map(printable, answer.decode(errors="replace").splitlines())
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _version(told: Mapping[str, str]) -> str:
    if version := told.get("valkey_version"):
        return f"Valkey {version}"
    return f"Redis {told['redis_version']}" if "redis_version" in told else ""


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _reason(conf: Configuration, error: Exception) -> str:
    """Return why the server does not serve us, in words that show no password."""
    text = str(refusal(error, where(conf)) or str(error) or type(error).__name__)
    return printable(text.rstrip("."))
