"""The fixtures of the recipes' tests, with Redis in place of ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from distlock.engine.redis import requests as redis_requests
from distlock.engine.redis.client import RedisClient
from tests.kit.engines import in_place_of_zookeeper

if TYPE_CHECKING:
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
    return in_place_of_zookeeper(redis)


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
