"""Signals in the past tense. The app's own logging is a receiver of these (see `apps`).

All are sent with the lock's class as ``sender`` (`Mutex`, `Semaphore`), in the thread or task that
caused them, after the fact, through `announce`: a receiver that raises is logged and never harms
the lock.
"""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

logger = logging.getLogger("distlock")

#: A first (not reentrant) acquire succeeded: ``key``, ``hold``, ``waited`` (seconds).
lock_acquired = Signal()
#: The last release of a hold: ``key``, ``hold``, ``held_for`` (seconds).
lock_released = Signal()
#: A hold was found to be lost: ``key``, ``hold``.
lock_lost = Signal()
#: An acquire ended without the lock: ``key``, ``waited`` (seconds).
lock_contended = Signal()


def announce(signal: Signal, sender: type, **facts: Any) -> None:
    """Send `signal` to its receivers, and cost next to nothing when there are none."""
    if not signal.receivers:
        return
    for receiver, answer in signal.send_robust(sender, **facts):
        if isinstance(answer, Exception):
            logger.error("signal receiver %r failed", receiver, exc_info=answer)
