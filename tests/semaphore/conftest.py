"""Fixtures of the semaphore tests: those of the mutex tests, with nothing left at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distlock.session.registry import close_sessions
from distlock_chaos.server import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings


@pytest.fixture
def own_ensemble(two_sessions: Settings) -> Iterator[ZooKeeper]:
    """Three servers that a test may stop, for both aliases."""
    with ZooKeeper(nodes=3) as ensemble:
        options = {
            **two_sessions.DISTLOCK["default"],
            "HOSTS": ensemble.hosts,
            "CONNECT_TIMEOUT": 2,
        }
        two_sessions.DISTLOCK = {"default": options, "other": options}
        yield ensemble
        close_sessions()
