"""Asks a Redis server for what `doctor` and the admin page show, over a connection of its own."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoPermissionError, RedisError

from distlock.engine.protocol import Member
from distlock.text import printable

from .address import address, where
from .errors import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlock.conf import Configuration

_ROLES = {"master": "primary", "slave": "replica"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts that a server reports of itself; None where it does not.

    :ivar appendonly: whether it writes each change to a file
    :ivar maxmemory: in bytes, 0 for no limit
    :ivar policy: what it evicts when that is full
    :ivar replicas: the number of those that are connected
    """

    member: Member
    appendonly: bool | None = None
    maxmemory: int | None = None
    policy: str | None = None
    replicas: int | None = None


def facts(conf: Configuration, timeout: float = 1.0) -> Facts:
    """Ask the server of ``HOSTS``; its `member` has the reason if it does not answer."""
    found = address(conf.hosts)
    started = time.monotonic()
    connection = None
    try:
        connection = found.connect(timeout)
        return _facts(connection, found.shown)
    except (RedisError, OSError, TypeError) as error:  # a refusal is an answer, too
        member = Member(
            address=found.shown,
            reachable=connection is not None,
            error=_reason(conf, error),
            seconds=time.monotonic() - started,
        )
        return Facts(member=member)
    finally:
        if connection is not None:
            connection.disconnect()


def _facts(connection: Any, shown: str) -> Facts:
    asked = time.monotonic()
    _ask(connection, "PING")
    took = time.monotonic() - asked
    told: Mapping[str, str] = {}
    with suppress(NoPermissionError):
        told = _info(_ask(connection, "INFO"))
    return Facts(
        member=Member(
            address=shown,
            reachable=True,
            role=_ROLES.get(told.get("role", ""), ""),
            version=_version(told),
            seconds=took,
        ),
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
