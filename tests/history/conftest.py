"""Fixtures of the history's tests: those of the mutex."""

from __future__ import annotations

import pytest

from distlock.session.registry import close_sessions


@pytest.fixture(autouse=True, scope="module")
def _nothing_reconnects() -> None:
    """A session that has lost its server draws random pauses, and hypothesis takes offence."""
    close_sessions()
