"""Fixtures of the tests of locks that do not queue: those of the mutex and lease tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distlock.queue import waiting
from tests.lease.conftest import requests, set_options
from tests.mutex.conftest import (
    broken_link,
    holder,
    make_owner,
    own_zookeeper,
    tree,
    two_sessions,
)
from tests.mutex.tools import PATIENCE

if TYPE_CHECKING:
    from pytest_django import Settings

__all__ = [
    "broken_link",
    "holder",
    "make_owner",
    "own_zookeeper",
    "requests",
    "set_options",
    "tree",
    "two_sessions",
]


@pytest.fixture
def patient(two_sessions: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a busy machine holds up is not taken for a server that is away, nor for a lost lock."""
    monkeypatch.setattr(waiting, "ANSWER_SECONDS", PATIENCE)
    aliases = two_sessions.DISTLOCK
    long = {"SESSION_TIMEOUT": 20, "CONNECT_TIMEOUT": PATIENCE}
    two_sessions.DISTLOCK = {using: {**options, **long} for using, options in aliases.items()}
