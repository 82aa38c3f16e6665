"""Fixtures of the inspection's tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_clock_is_known(no_server_time: None) -> None:
    """A test begins without what an earlier one has learnt of the server's time."""
