"""Connects distlock to other libraries. Each module needs an extra, and costs nothing unused."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from distlock import signals
from distlock.exceptions import DeadlockDetected, LockBusy, LockUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Name the package to install if the imports in this block fail.

    :param name: the extra of the package that brings the library
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{error}. This part of distlock needs a library of its own. "
            f'Type: pip install "django-distlock[{name}]"',
            name=error.name,
        ) from error


class Receivers:
    """Receivers of all lock signals, connected and disconnected together."""

    def connect(self) -> None:
        """Begin to receive. Any number of calls are fine."""
        for signal, receiver in self._receivers():
            signal.connect(receiver)

    def disconnect(self) -> None:
        """Stop receiving."""
        for signal, receiver in self._receivers():
            signal.disconnect(receiver)

    def _receivers(self) -> list[tuple[Any, Any]]:
        return [
            (signals.lock_acquired, self._acquired),
            (signals.lock_contended, self._contended),
            (signals.lock_failed, self._failed),
            (signals.lock_at_risk, self._at_risk),
            (signals.lock_safe, self._safe),
            (signals.lock_lost, self._lost),
            (signals.lock_released, self._released),
        ]

    _acquired: Any
    _contended: Any
    _failed: Any
    _at_risk: Any
    _safe: Any
    _lost: Any
    _released: Any


_OUTCOMES = {LockBusy: "busy", LockUnavailable: "unavailable", DeadlockDetected: "deadlock"}


def outcome_of(error: Exception) -> str:
    """Return one word for the outcome of an acquire that raised `error`."""
    return _OUTCOMES.get(type(error), "error")
