"""Fixtures of the lease tests: those of the mutex tests, and records of what happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distlock.engine import deadline
from distlock.engine.zookeeper import connection
from distlock.session import requests as session_requests
from distlock.session import session


@pytest.fixture
def shift_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets the lease's clock jump ahead, as one that goes on while the machine is stopped."""
    shift, real = 0.0, deadline.now

    def jump(seconds: float) -> None:
        nonlocal shift
        shift += seconds

    for module in (connection, deadline, session_requests, session):
        monkeypatch.setattr(module, "now", lambda: real() + shift)
    return jump
