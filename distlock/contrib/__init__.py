"""Connects distlock to other libraries. Each module needs an extra, and costs nothing unused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.dispatch import Signal

from distlock import signals
from distlock.exceptions import DeadlockDetected, LimitReached, LockBusy, LockUnavailable

#: The ends of the signals' names.
EVENTS: Final = (
    *("acquired", "contended", "failed", "bypassed", "at_risk", "lost", "released"),
    *("held_long", "waited_long", "waits"),
)


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Say what to install if the imports in this block fail: the package `name`."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{error}. This part of distlock needs a library of its own. Type: pip install {name}",
            name=error.name,
        ) from error


class Receivers:
    """Methods such as ``_acquired`` for some of `EVENTS`, connected and disconnected together."""

    def connect(self) -> None:
        """Begin to receive. Any number of calls are fine."""
        for signal, receiver in self._receivers():
            signal.connect(receiver)

    def disconnect(self) -> None:
        """Stop receiving."""
        for signal, receiver in self._receivers():
            signal.disconnect(receiver)

    def _receivers(self) -> Iterator[tuple[Signal, Any]]:
        for event in EVENTS:
            if hasattr(self, f"_{event}"):
                yield getattr(signals, f"lock_{event}"), getattr(self, f"_{event}")


_OUTCOMES = {
    LockBusy: "busy",
    LimitReached: "busy",
    LockUnavailable: "unavailable",
    DeadlockDetected: "deadlock",
}


def outcome_of(error: Exception) -> str:
    return _OUTCOMES.get(type(error), "error")
