"""PostgreSQL as an engine; `distlock.engine.protocol.Engine` tells of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo

from .client import PostgresClient
from .server import parameters, servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.engine.protocol import Configuration, Finding

__all__ = ["advice", "client", "lend", "looks", "report", "servers", "shown"]

client = PostgresClient
#: No library's client can share a session.
lend = None


def report(conf: Configuration, session_id: int, password: bytes) -> dict[str, Any]:
    arguments = parameters(conf)
    return {
        "alias": conf.alias,
        "session": session_id,
        "password": password.hex(),
        "servers": [("", 0)],
        "database": make_conninfo(**{k: v for k, v in arguments.items() if v is not None}),
        "library": str(Path(psycopg.__file__).parents[1]),
    }


def shown(conf: Configuration) -> str:
    return conf.hosts


def looks(conf: Configuration, timeout: float, seconds: float) -> Iterator[Finding]:
    yield from ()


def advice(conf: Configuration, right: str) -> str:
    return "The message says what the user of DATABASES may not do."
