"""Fixtures of the lease tests: those of the mutex tests, and records of what happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from distlock.engine import deadline
from distlock.engine.client import Client
from distlock.session import session
from distlock.signals import lock_lost
from tests.lease.tools import Loss, SetOptions, loss_of
from tests.mutex.conftest import (
    broken_link,
    holder,
    make_owner,
    own_zookeeper,
    tree,
    two_sessions,
)
from tests.mutex.tools import record_requests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

__all__ = [
    "broken_link",
    "holder",
    "make_owner",
    "own_zookeeper",
    "tree",
    "two_sessions",
]


@pytest.fixture
def losses() -> Iterator[list[Loss]]:
    """What `lock_lost` has told, when and on which thread."""
    told: list[Loss] = []

    def receive(**facts: Any) -> None:
        told.append(loss_of(facts))

    lock_lost.connect(receive)
    yield told
    lock_lost.disconnect(receive)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the requests that this process sends, without kazoo's pings."""
    return record_requests(monkeypatch, Client)


@pytest.fixture
def set_options(two_sessions: Settings) -> SetOptions:
    """Changes options of the alias "default", or of the one that is named."""

    def change(using: str = "default", **options: Any) -> None:
        aliases = two_sessions.DISTLOCK
        two_sessions.DISTLOCK = {**aliases, using: {**aliases[using], **options}}

    return change


@pytest.fixture
def shift_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets the lease's clock jump ahead, as one that goes on while the machine is stopped."""
    shift, real = 0.0, deadline.now

    def jump(seconds: float) -> None:
        nonlocal shift
        shift += seconds

    _replace_clock(monkeypatch, lambda: real() + shift)
    return jump


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease's clock stands still, so that what is left of a lease can be told to the bit."""
    now = deadline.now()
    _replace_clock(monkeypatch, lambda: now)


def _replace_clock(monkeypatch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    for module in (deadline, session):
        monkeypatch.setattr(module, "now", now)
