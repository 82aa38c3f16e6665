"""Fixtures of the revocation tests: those of the mutex and lease tests, and who was asked."""

from __future__ import annotations

import threading
from typing import NamedTuple

import pytest

from distlock import Mutex
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE


class Call(NamedTuple):
    """One call of ``on_revoke``."""

    lock: Mutex
    thread: str


class Asked(list[Call]):
    """An ``on_revoke`` that notes its calls."""

    def __call__(self, lock: Mutex) -> None:
        self.append(Call(lock, threading.current_thread().name))

    def times(self, number: int) -> None:
        """Wait for so many calls; more of them fail the test."""
        eventually(lambda: len(self) >= number, PATIENCE, f"on_revoke was called {number} times")
        for thread in threading.enumerate():
            if thread.name == "distlock-revoke":
                thread.join(PATIENCE)
        assert len(self) == number


@pytest.fixture
def asked() -> Asked:
    return Asked()
