"""Fixtures of the inspection tests: those of the mutex."""

from __future__ import annotations

import pytest

from distlock.session import server_time
from tests.mutex.conftest import broken_link, holder, make_owner, own_zookeeper, tree, two_sessions

__all__ = ["broken_link", "holder", "make_owner", "own_zookeeper", "tree", "two_sessions"]


@pytest.fixture(autouse=True)
def _no_clock_is_known() -> None:
    server_time._clocks.clear()
