"""Reads the server's time, so that reported waits do not depend on clients' skewed clocks.

ZooKeeper reveals its time only in writes: the leader's clock gives a new node its ``ctime``. So
this module creates an ephemeral node for a moment, and trusts the difference to our own clock for a
minute.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from .session import Session

#: How long a measured difference is trusted, in seconds.
KNOWN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Tells the time: the server's, if it is `exact`, or else our own."""

    exact: bool
    #: The seconds since 1970, minus `time.monotonic`.
    offset: float
    #: When the offset was measured (`time.monotonic`).
    found_at: float

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.monotonic() + self.offset


def time_at(seconds: float) -> datetime:
    """Return the time for a number of seconds since 1970."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc)


_clocks: WeakKeyDictionary[Session, Clock] = WeakKeyDictionary()


def server_clock(session: Session, timeout: float) -> Clock:
    """Return the server's clock, or our own if we may not write or the answer is late."""
    clock = _clocks.get(session)
    if clock is None or time.monotonic() - clock.found_at > KNOWN_SECONDS:
        clock = _clocks[session] = _ask(session, timeout)
    return clock


def _ask(session: Session, timeout: float) -> Clock:
    # No key's znode name has an @.
    path = f"{session.root}/@clock-{uuid4().hex}"
    answers: list[tuple[float, float]] = []
    answered = threading.Event()

    def remove(_: Any) -> None:
        session.remove(path, -1, lambda *_: None)

    def created(value: Any, error: BaseException | None) -> None:
        if error is None:
            answers.append((value[1].ctime / 1000, time.monotonic()))
            remove(value)
        answered.set()

    asked_at = time.monotonic()
    session.create_ephemeral(path, b"", created, remove)
    answered.wait(timeout)
    if not answers:
        now = time.monotonic()
        return Clock(exact=False, offset=time.time() - now, found_at=now)
    server_time, answered_at = answers[0]
    # The server took its time somewhere between the two.
    middle = (asked_at + answered_at) / 2
    return Clock(exact=True, offset=server_time - middle, found_at=answered_at)
