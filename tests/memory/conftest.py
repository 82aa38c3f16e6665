"""The fixtures of the recipes' tests, with the ZooKeeper in memory in place of a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from distlock.testing import memory_zookeeper
from distlock.testing.memory_client import MemoryClient
from tests.kit.fixtures import assert_clean
from tests.kit.tools import PATIENCE, REAP_SECONDS, Tree, record_requests
from tests.memory.looker import Looker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from distlock.testing import MemoryTree
    from distlock.testing.server import ZooKeeper


#: No server listens there.
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def distlock_memory() -> Iterator[MemoryTree]:
    """The shipped one would not have it that tests ask for `zookeeper` too."""
    with memory_zookeeper() as tree:
        tree.reap_after = REAP_SECONDS
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
def tree(two_sessions: Settings, distlock_memory: MemoryTree) -> Iterator[Tree]:
    namespace = two_sessions.DISTLOCK["default"]["NAMESPACE"]
    tree = Tree(cast("Any", Looker(distlock_memory)), namespace)
    yield tree
    assert_clean(tree)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return record_requests(monkeypatch, MemoryClient)
