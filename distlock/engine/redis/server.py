"""Asks a Redis server for what `doctor` shows, over a connection of its own."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoPermissionError, RedisError

from distlock.text import printable

from .address import address, where
from .errors import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlock.engine.configuration import Configuration

_ROLES = {"master": "primary", "slave": "replica"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts that a server reports of itself; None, or empty, where it does not.

    :ivar error: the reason why it does not serve us
    :ivar seconds: the time that its answer took
    :ivar role: ``primary`` or ``replica``
    :ivar appendonly: whether it writes each change to a file
    :ivar maxmemory: in bytes, 0 for no limit
    :ivar policy: what it evicts when that is full
    :ivar replicas: the number of those that are connected
    """

    error: str = ""
    seconds: float = 0.0
    role: str = ""
    version: str = ""
    appendonly: bool | None = None
    maxmemory: int | None = None
    policy: str | None = None
    replicas: int | None = None


def facts(conf: Configuration, timeout: float) -> Facts:
    """Ask the server of ``HOSTS``; each step has `timeout` seconds."""
    connection = None
    try:
        connection = address(conf.hosts).connect(timeout)
        return _facts(connection)
    except (RedisError, OSError, TypeError) as error:  # a refusal is an answer, too
        return Facts(error=_reason(conf, error))
    finally:
        if connection is not None:
            connection.disconnect()


def _facts(connection: Any) -> Facts:
    asked = time.monotonic()
    _ask(connection, "PING")
    took = time.monotonic() - asked
    told: Mapping[str, str] = {}
    with suppress(NoPermissionError):
        told = _info(_ask(connection, "INFO"))
    return Facts(
        role=_ROLES.get(told.get("role", ""), ""),
        version=_version(told),
        seconds=took,
        appendonly=told["aof_enabled"] == "1" if "aof_enabled" in told else None,
        maxmemory=_number(told.get("maxmemory")),
        policy=told.get("maxmemory_policy"),
        replicas=_number(told.get("connected_slaves")),
    )


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
