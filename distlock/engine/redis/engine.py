"""Redis as an engine; `distlock.engine.protocol.Engine` tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .address import address
from .client import RedisClient
from .requests import report
from .server import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.engine.protocol import Configuration, Finding

__all__ = ["advice", "client", "lend", "looks", "report", "servers", "shown"]

client = RedisClient
#: redis-py's client cannot share a connection.
lend = None


def shown(conf: Configuration) -> str:
    return address(conf.hosts).shown


def looks(conf: Configuration, timeout: float, seconds: float) -> Iterator[Finding]:
    yield from ()


def advice(conf: Configuration, right: str) -> str:
    return "The message says what the server, or the user in HOSTS, does not do."
