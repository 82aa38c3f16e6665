"""Fixtures: sessions that no alias has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from distlock.conf import Configuration
from distlock.session.session import Session
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.session.tools import MakeSession


@pytest.fixture
def make_session(zookeeper: ZooKeeper, namespace: str) -> Iterator[MakeSession]:
    """Makes connected sessions of their own with the given settings; ends them after the test."""
    made: list[Session] = []

    def make(**options: Any) -> Session:
        defaults: dict[str, Any] = {
            "hosts": zookeeper.hosts,
            "namespace": namespace,
            "session_timeout": 4,
        }
        made.append(Session(Configuration(**(defaults | options))))
        eventually(lambda: made[-1].connected)
        return made[-1]

    yield make
    for one in made:
        one.close()
