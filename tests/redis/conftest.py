"""The fixtures of the recipes' tests, with Redis in place of ZooKeeper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from distlock.engine.redis import requests as redis_requests
from distlock.engine.redis.client import RedisClient
from tests.kit.fixtures import assert_clean
from tests.kit.tools import Tree
from tests.redis.looker import Looker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from distlock.testing.server import ZooKeeper
    from tests.kit.services import Redis

#: The requests, as the borrowed tests name them.
KAZOOS = {
    "create": "Create2",
    "set": "SetData",
    "delete": "Delete",
    "check": "CheckVersion",
    "read": "GetData",
    "list": "GetChildren",
    "ping": "Sync",
    "unwatch": "_RemoveWatches",
}


@pytest.fixture(autouse=True)
def _short_lived_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the test servers."""
    monkeypatch.setattr(redis_requests, "EMPTY_MS", 1000)


@pytest.fixture
def zookeeper(redis: Redis) -> ZooKeeper:
    """What the borrowed tests want of a server: where it is."""
    return cast("ZooKeeper", SimpleNamespace(hosts=redis.new_database()))


@pytest.fixture
def tree(two_sessions: Settings) -> Iterator[Tree]:
    options = two_sessions.DISTLOCK["default"]
    with Looker(options["HOSTS"], options["NAMESPACE"]) as looker:
        tree = Tree(cast("Any", looker), options["NAMESPACE"])
        yield tree
        assert_clean(tree)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the requests that this process sends, in kazoo's words."""
    sent: list[str] = []
    submit = RedisClient.submit

    def kind(request: Any) -> str:
        if hasattr(request, "steps"):
            return "Transaction"
        function = request.function.decode().rpartition("_")[2]
        return KAZOOS[getattr(request, "name", function)]

    def record(self: Any, *calls: tuple[Any, Any], **how: Any) -> None:
        sent.extend(kind(request) for request, _ in calls)
        submit(self, *calls, **how)

    monkeypatch.setattr(RedisClient, "submit", record)
    return sent
