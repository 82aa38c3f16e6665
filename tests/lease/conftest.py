"""Fixtures of the tests of persistent leases: those of the mutex, with more patience."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from distlock.session.registry import close_sessions
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.tools import PATIENCE


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
