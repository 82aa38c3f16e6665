"""The settings of one alias, as engines and all that is above them read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One alias of ``DISTLOCK``, checked. Times are seconds; see docs/reference/settings.md."""

    alias: str = "default"
    #: A URL may hold a password.
    hosts: str = field(default="127.0.0.1:2181", repr=False)
    namespace: str = "/distlock"
    timeout: float | None = 5.0
    session_timeout: float = 10.0
    connect_timeout: float = 3.0
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    acl: Any = field(default="open", repr=False)
    tls: Mapping[str, Any] | None = field(default=None, repr=False)
    in_transaction: str = "raise"
    busy_status: int = 423
    retry_after: float = 1.0
    node_data: str = "full"
    label: str = "route"
    deadlock_after: float | None = 3.0
    strict: bool = False
    max_node_bytes: int = 750_000
    history: int = 0
    history_slow: float = 1.0
    replicas: int = 0
