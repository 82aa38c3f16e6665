"""The fixtures of the recipes' tests, with the ZooKeeper in memory in place of a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from distlock.testing import memory_zookeeper
from distlock.testing.memory_client import MemoryClient
from tests.lease.conftest import set_options
from tests.leases.conftest import told
from tests.memory.looker import Looker
from tests.multilock.test_multilock import busy
from tests.mutex.conftest import (
    assert_clean,
    holder,
    make_owner,
)
from tests.mutex.tools import PATIENCE, Tree
from tests.semaphore.tools import Leases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from distlock.testing import MemoryTree
    from distlock.testing.server import ZooKeeper

__all__ = [
    "busy",
    "holder",
    "make_owner",
    "set_options",
    "told",
]

#: No server listens there.
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def distlock_memory() -> Iterator[MemoryTree]:
    """The shipped one would not have it that tests ask for `zookeeper` too."""
    with memory_zookeeper() as tree:
        yield tree


@pytest.fixture
def zookeeper() -> ZooKeeper:
    """What the borrowed tests want of a server: where it is."""
    return cast("ZooKeeper", SimpleNamespace(hosts=NOWHERE))


@pytest.fixture
def distlock_settings(settings: Settings, namespace: str) -> Settings:
    settings.DISTLOCK = {
        "default": {
            "HOSTS": NOWHERE,
            "NAMESPACE": namespace,
            "TIMEOUT": 5,
            "CONNECT_TIMEOUT": PATIENCE,
        }
    }
    return settings


@pytest.fixture
def two_sessions(distlock_settings: Settings) -> Settings:
    default = distlock_settings.DISTLOCK["default"]
    distlock_settings.DISTLOCK = {"default": default, "other": default}
    return distlock_settings


@pytest.fixture
def tree(two_sessions: Settings, distlock_memory: MemoryTree) -> Iterator[Tree]:
    namespace = two_sessions.DISTLOCK["default"]["NAMESPACE"]
    tree = Tree(cast("Any", Looker(distlock_memory)), namespace)
    yield tree
    assert_clean(tree)


@pytest.fixture
def leases(tree: Tree) -> Iterator[Leases]:
    leases = Leases(tree)
    tree.client.ensure_path(leases.path)
    tree.client.ensure_path(leases.gate)
    yield leases
    leases.await_(0, 0)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sent: list[str] = []
    submit = MemoryClient.submit

    def record(client: MemoryClient, request: Any, reply: Any, **options: Any) -> None:
        sent.append(type(request).__name__)
        submit(client, request, reply, **options)

    monkeypatch.setattr(MemoryClient, "submit", record)
    return sent
