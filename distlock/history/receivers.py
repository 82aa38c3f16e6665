"""Makes events of the app's signals, in the threads of callers: as little as can be.

A signal handler may interrupt any line and send a signal itself, so nothing here takes a lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, Final

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import Signal

from distlock import signals
from distlock.conf import configuration
from distlock.exceptions import DeadlockDetected
from distlock.lease.hold import LeaseHold
from distlock.models import LockEvent
from distlock.owner.hold import REASONS, Hold, grant_of
from distlock.owner.owner import current

from .recorder import Event, record

Kind: Final = LockEvent.Kind


def _released(*, hold: Hold, held_for: float, using: str, **_: Any) -> None:
    conf, reason = configuration(using), hold.lost_reason
    if conf.history and (reason or max(hold.waited, held_for) >= conf.history_slow):
        detail = f"Lost before its end: {REASONS[reason]}." if reason else ""
        record(_of(hold, Kind.HELD, held_for, detail or ("Shared." if hold.shared else "")))


def _lost(*, hold: Hold, reason: str, using: str, **_: Any) -> None:
    if configuration(using).history:
        held_for = (datetime.now(timezone.utc) - hold.acquired_at).total_seconds()
        record(_of(hold, Kind.LOST, held_for, f"Lost: {REASONS[reason]}."))


def _of(hold: Hold, kind: LockEvent.Kind, held_for: float, detail: str) -> Event:
    owner = hold.owner if isinstance(hold, LeaseHold) else grant_of(hold).data
    return Event(
        kind=kind,
        using=hold.using,
        key=hold.key,
        at=time.time(),
        owner=owner,
        waited=hold.waited,
        held_for=held_for,
        token=hold.token,
        detail=detail,
    )


def _contended(*, key: str, waited: float, using: str, **_: Any) -> None:
    _in_vain(Kind.BUSY, key, using, waited)


def _failed(*, key: str, waited: float, using: str, error: Exception, **_: Any) -> None:
    kind = Kind.DEADLOCK if isinstance(error, DeadlockDetected) else Kind.FAILED
    _in_vain(kind, key, using, waited, str(error))


def _in_vain(kind: LockEvent.Kind, key: str, using: str, waited: float, detail: str = "") -> None:
    conf = configuration(using)
    if conf.history:
        now, owner = time.time(), current().describe(conf)
        record(Event(kind, using, key, now, owner=owner, waited=waited, detail=detail))


_RECEIVERS: Final[dict[Signal, Callable[..., None]]] = {
    signals.lock_released: _released,
    signals.lock_lost: _lost,
    signals.lock_contended: _contended,
    signals.lock_failed: _failed,
}


def connect() -> None:
    """Receive signals if an alias keeps a history. Any number of calls are fine."""
    for signal, receiver in _RECEIVERS.items():
        change = signal.connect if is_kept() else signal.disconnect
        change(receiver, dispatch_uid="distlock.history")


def is_kept() -> bool:
    """Return whether an alias keeps a history; the settings may be wrong."""
    aliases = getattr(settings, "DISTLOCK", None)
    options = aliases.values() if isinstance(aliases, Mapping) else ()
    return any(isinstance(one, Mapping) and one.get("HISTORY") for one in options)


def _settings_changed(*, setting: str, **_: Any) -> None:
    if setting == "DISTLOCK":
        connect()


setting_changed.connect(_settings_changed)
