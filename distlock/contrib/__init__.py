"""What distlock tells other libraries: each module needs an extra, and costs nothing unused."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from distlock.exceptions import DeadlockDetected, LockBusy, LockUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Say what to install where the imports in this block fail.

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


_OUTCOMES = {LockBusy: "busy", LockUnavailable: "unavailable", DeadlockDetected: "deadlock"}


def outcome_of(error: Exception) -> str:
    """Return in a word how an acquire ended that raised `error`."""
    return _OUTCOMES.get(type(error), "error")
