"""Fixtures of the embedded server's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from distlock.embedded.server import EmbeddedZooKeeper
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def embedded() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(session_timeouts=(0.5, 40.0)) as server:
        yield server


@pytest.fixture
def client(embedded: EmbeddedZooKeeper) -> Iterator[KazooClient]:
    """A client of the embedded server, kazoo's own."""
    client = KazooClient(embedded.hosts, timeout=30)
    client.start(PATIENCE)
    yield client
    client.stop()
    client.close()


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """The server on which the borrowed tests of recipes run."""
    with EmbeddedZooKeeper() as server:
        yield server
