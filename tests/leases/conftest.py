"""Fixtures of the tests of persistent leases: those of the mutex, with more patience."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from distlock.lease.persistent import PersistentLease
from distlock.session.registry import close_sessions
from distlock.signals import lock_acquired, lock_contended, lock_lost, lock_released
from distlock.testing.proxy import TcpProxy
from tests.mutex.conftest import make_owner, own_zookeeper, tree
from tests.mutex.tools import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.dispatch import Signal
    from pytest_django import Settings

    from distlock.testing.server import ZooKeeper

__all__ = ["make_owner", "own_zookeeper", "tree"]


@pytest.fixture
def two_sessions(distlock_settings: Settings) -> Settings:
    """Beside "default" an alias "other" with the same tree: as a client in another process."""
    default = distlock_settings.DISTLOCK["default"]
    # A renewal and a release wait for an answer, however busy the machine is.
    default = {**default, "TIMEOUT": PATIENCE, "CONNECT_TIMEOUT": PATIENCE}
    distlock_settings.DISTLOCK = {"default": default, "other": default}
    return distlock_settings


@pytest.fixture
def link(two_sessions: Settings, zookeeper: ZooKeeper) -> Iterator[TcpProxy]:
    """The link of the alias "default", whole at first; "other" is connected directly."""
    with TcpProxy("127.0.0.1", zookeeper.servers[0].port) as proxy:
        default = {**two_sessions.DISTLOCK["default"], "HOSTS": proxy.address}
        two_sessions.DISTLOCK = {**two_sessions.DISTLOCK, "default": default}
        yield proxy
        proxy.pass_through()
        close_sessions()


@pytest.fixture
def told() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What signals have said of leases: (which, facts)."""
    heard: list[tuple[str, dict[str, Any]]] = []
    signals: dict[str, Signal] = {
        "acquired": lock_acquired,
        "released": lock_released,
        "lost": lock_lost,
        "contended": lock_contended,
    }

    def receiver(name: str) -> Any:
        def hear(**facts: Any) -> None:
            assert facts.pop("sender") is PersistentLease
            del facts["signal"]
            heard.append((name, facts))

        return hear

    receivers = {name: receiver(name) for name in signals}
    for name, signal in signals.items():
        signal.connect(receivers[name])
    yield heard
    for name, signal in signals.items():
        signal.disconnect(receivers[name])
