"""Defines the signals, in the past tense. The app's own logging is a receiver (see `apps`).

`announce` sends them after the fact, with the lock's class as ``sender`` (`Mutex`, `Semaphore`), in
the thread or task that caused them. It logs a receiver that raises, which never harms the lock.
All carry ``key``, ``using`` (the alias) and ``template`` (empty for a block without one).
"""

from __future__ import annotations

import threading
from typing import Any, Final, Protocol

from django.dispatch import Signal

from .logs.loggers import logger

#: The upper bounds of histograms of ``waited`` and ``held_for``, from a round trip to a job of an
#: hour: those of Prometheus, and of the last hour in the admin.
BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)


class _Signal(Signal):
    """A signal that a Python signal handler may send while it is being sent."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()  # type: ignore[assignment]


#: A first (not reentrant) acquire succeeded: ``hold``, ``waited`` (seconds).
lock_acquired = _Signal()
#: The last release of a hold: ``hold``, ``held_for`` (seconds).
lock_released = _Signal()
#: The connection under a hold is gone, and its deadline has not passed: ``hold``.
lock_at_risk = _Signal()
#: A hold that was at risk is safe again, since the lock server has confirmed its session: ``hold``.
lock_safe = _Signal()
#: A hold was found to be lost: ``hold``, ``reason`` (`Hold.lost_reason`).
lock_lost = _Signal()
#: A hold has lasted for ``HELD_LONG``, and lasts; again at twice the time, and so on: ``hold``,
#: ``held_for`` (seconds), ``waiting`` (how many wait; None if the server did not say), ``who`` (a
#: text: request or task, and thread). On the timer's thread.
lock_held_long = _Signal()
#: An acquire has waited for ``WAITED_LONG``, and waits; again at twice the time, and so on:
#: ``waited`` (seconds), ``who``. In the waiting thread or task.
lock_waited_long = _Signal()
#: An acquire begins to wait behind others, or this wait is over, however it ended: ``wait`` (the
#: same object both times), ``over``.
lock_waits = _Signal()
#: An acquire ended without the lock, because others have it: ``waited`` (seconds).
lock_contended = _Signal()
#: An acquire failed with an error: ``waited`` (seconds), ``error``.
lock_failed = _Signal()
#: A block goes on without its lock (``on_unavailable="proceed"``), after `lock_failed`: ``error``.
lock_bypassed = _Signal()
#: An operator asked a participant to release, broke its lock or set a limit: ``action``
#: (``"revoke"``, ``"break"`` or ``"limit"``), ``target`` (`locks.actions.Target`, or its
#: `NewLimit`), ``operator`` and ``reason`` (texts).
operator_acted = _Signal()


class Subject(Protocol):
    """The subject of a signal: a lock, or a hold of it."""

    @property
    def key(self) -> str: ...
    @property
    def using(self) -> str: ...
    @property
    def template(self) -> str: ...


def announce(signal: Signal, sender: type, about: Subject, **facts: Any) -> None:
    """Send `signal` to its receivers, almost for free if there are none."""
    if not signal.receivers:
        return
    facts |= {"key": about.key, "using": about.using, "template": about.template}
    for receiver, answer in signal.send_robust(sender, **facts):
        if isinstance(answer, Exception):
            logger.error("signal receiver %r failed", receiver, exc_info=answer)
