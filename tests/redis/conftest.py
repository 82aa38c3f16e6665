"""The fixtures of the recipes' tests, with Redis in place of ZooKeeper; and a server of choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from distlock.session.registry import close_sessions
from distlock_chaos.server import ZooKeeper
from tests.kit.engines import in_place_of_zookeeper
from tests.kit.services import Redis


@pytest.fixture
def zookeeper(redis: Redis) -> ZooKeeper:
    return in_place_of_zookeeper(redis)


@pytest.fixture
def use(settings: Settings, namespace: str) -> Iterator[Callable[..., None]]:
    """Point both aliases to a URL."""

    def point(hosts: str, **more: Any) -> None:
        times = {"SESSION_TIMEOUT": 4, "TIMEOUT": 2, "CONNECT_TIMEOUT": 2}
        options = {"HOSTS": hosts, "NAMESPACE": namespace, **times, **more}
        settings.DISTLOCK = {"default": options, "other": options}

    yield point
    close_sessions()
