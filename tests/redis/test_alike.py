"""Redis and a real ZooKeeper get the same requests and give the same answers.

Hypothesis chooses the requests, on two sessions of each: every answer, stat, error and watch event
is compared after each one, and the whole tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distlock.engine.redis import requests as redis_requests
from distlock.engine.redis.client import RedisClient
from distlock.testing.fixtures import _run
from tests.testing.alike import compare
from tests.testing.sides import World
from tests.testing.test_memory_alike import Alike

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.testing.server import ZooKeeper
    from tests.kit.services import Redis


@pytest.fixture(scope="module")
def lasting_containers() -> Iterator[ZooKeeper]:
    """A server that removes no empty containers while a test looks."""
    yield from _run(jvm=["-Dznode.container.checkIntervalMs=3600000"])


class AlikeInRedis(Alike):
    redis: Redis

    def other(self, root: str) -> World:
        return World(RedisClient, self.redis.new_database(), root)


def test_redis_and_a_real_server_are_alike(
    lasting_containers: ZooKeeper, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_requests, "EMPTY_MS", 3_600_000)
    compare(type("Machine", (AlikeInRedis,), {"hosts": lasting_containers.hosts, "redis": redis}))
