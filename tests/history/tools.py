"""Tools of the history's tests: events without a lock, and programs that record some."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from distlock import signals
from distlock.history import Event
from distlock.models import LockEvent

KEY = "stock:42"


def event(key: str = KEY, kind: str = "busy", **facts: Any) -> Event:
    """An event as a caller records it."""
    return Event(kind=LockEvent.Kind(kind), using="default", key=key, at=time.time(), **facts)


def refuse(key: str = KEY, waited: float = 0.5) -> None:
    """Tell that an acquire was refused, which is always recorded."""
    about = SimpleNamespace(key=key, using="default", template="")
    signals.announce(signals.lock_contended, object, about, waited=waited)
