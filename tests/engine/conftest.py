"""Fixtures: a session deadline, and a clock that does as it is told."""

from __future__ import annotations

import pytest

from distlock.engine import deadline as heartbeat
from distlock.engine.deadline import SessionDeadline

T = 600.0  # so long that nothing happens by itself


class Clock:
    """The deadline's clock."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(heartbeat, "now", clock)
    return clock


@pytest.fixture
def deadline(clock: Clock) -> SessionDeadline:
    """One that was renewed just now."""
    deadline = SessionDeadline()
    deadline.renew(clock.time, T)
    return deadline
