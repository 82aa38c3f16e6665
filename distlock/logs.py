"""The app's own logging: receivers of its signals, as anybody could write them.

The logger is ``distlock``; a record carries ``key`` and, where known, ``waited`` and ``token``.
"""

from __future__ import annotations

import logging
from typing import Any

from . import signals

logger = logging.getLogger("distlock")


def connect() -> None:
    """Connect the receivers; may be repeated (runserver calls ``ready`` twice)."""
    signals.lock_lost.connect(_lost, dispatch_uid="distlock.logs.lost")
    signals.lock_contended.connect(_contended, dispatch_uid="distlock.logs.contended")


def _lost(*, key: str, hold: Any, **_: Any) -> None:
    logger.error(
        "The lock %r (token %d) was lost while held.",
        key,
        hold.token,
        extra={"key": key, "token": hold.token},
    )


def _contended(*, key: str, waited: float, **_: Any) -> None:
    logger.info(
        "The lock %r was busy for %.2f s; given up.",
        key,
        waited,
        extra={"key": key, "waited": waited},
    )
