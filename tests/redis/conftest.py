"""The fixtures of the recipes' tests, with Redis in place of ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.engines import in_place_of_zookeeper

if TYPE_CHECKING:
    from distlock.testing.server import ZooKeeper
    from tests.kit.services import Redis


@pytest.fixture
def zookeeper(redis: Redis) -> ZooKeeper:
    return in_place_of_zookeeper(redis)
