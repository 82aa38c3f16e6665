"""Fixtures of the tests of locks that do not queue: those of the mutex and lease tests."""

from __future__ import annotations

import pytest

from distlock import waiting
from tests.lease.conftest import requests, set_options
from tests.mutex.conftest import (
    _main_thread_holds_nothing,
    broken_link,
    holder,
    make_owner,
    own_zookeeper,
    tree,
    two_sessions,
)
from tests.mutex.tools import PATIENCE

__all__ = [
    "_main_thread_holds_nothing",
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
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that a busy machine holds up is not taken for one that is away."""
    monkeypatch.setattr(waiting, "ANSWER_SECONDS", PATIENCE)
