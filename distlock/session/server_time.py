"""The server's time, so that skewed clocks of clients do not show in what is told of waits.

ZooKeeper tells its time only where something is written: in the ``ctime`` of a new node, which the
leader's clock gives. So a node is made, ephemeral and for a moment, and for a minute after that the
difference to our own clock is taken as known.
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

#: How long a difference is taken as known, in seconds.
KNOWN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Tells the time.

    :ivar exact: whether it is the server's, and not our own
    """

    exact: bool
    #: From `time.monotonic` to the seconds since 1970.
    offset: float
    #: When that was found (`time.monotonic`).
    found_at: float

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.monotonic() + self.offset


def time_at(seconds: float) -> datetime:
    """Return a number of seconds since 1970 as a time."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc)


_clocks: WeakKeyDictionary[Session, Clock] = WeakKeyDictionary()


def server_clock(session: Session, timeout: float) -> Clock:
    """Return the server's clock; our own where nothing may be written, or the answer is late.

    :param timeout: seconds to wait for it
    """
    clock = _clocks.get(session)
    if clock is None or time.monotonic() - clock.found_at > KNOWN_SECONDS:
        clock = _clocks[session] = _ask(session, timeout)
    return clock


def _ask(session: Session, timeout: float) -> Clock:
    # No key's znode name has an @.
    path = f"{session.root}/@clock-{uuid4().hex}"
    told: list[tuple[float, float]] = []
    answered = threading.Event()

    def remove(_: Any) -> None:
        session.remove(path, -1, lambda *_: None)

    def created(value: Any, error: BaseException | None) -> None:
        if error is None:
            told.append((value[1].ctime / 1000, time.monotonic()))
            remove(value)
        answered.set()

    asked_at = time.monotonic()
    session.create_ephemeral(path, b"", created, remove)
    answered.wait(timeout)
    if not told:
        now = time.monotonic()
        return Clock(exact=False, offset=time.time() - now, found_at=now)
    server_time, answered_at = told[0]
    # The server took its time somewhere between the two.
    middle = (asked_at + answered_at) / 2
    return Clock(exact=True, offset=server_time - middle, found_at=answered_at)
