"""Reads the server's time, so that reported waits do not depend on clients' skewed clocks.

ZooKeeper reveals its time only in writes: the leader's clock gives a new node its ``ctime``. So
this module creates an ephemeral node for a moment, and trusts the difference to our own clock for a
minute.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4
from weakref import WeakKeyDictionary

from .programs import asking, in_background

if TYPE_CHECKING:
    from distlock.engine.reply import Done

    from .programs import Program
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
    return session.run(clock_of(session), timeout=timeout, key=session.root)


def clock_of(session: Session) -> Program[Clock]:
    """Return the same, as a part of another program."""
    clock = _clocks.get(session)
    if clock is None or time.monotonic() - clock.found_at > KNOWN_SECONDS:
        clock = _clocks[session] = yield from _measure(session)
    return clock


def _measure(session: Session) -> Program[Clock]:
    # No key's znode name has an @.
    path = f"{session.root}/@clock-{uuid4().hex}"

    def make(done: Done) -> None:
        def made(value: Any, error: BaseException | None) -> None:
            # In any case: the answer may be lost, and the caller may have left.
            in_background(session, asking(partial(session.remove, path, -1)))
            done(value, error)

        session.create_ephemeral(path, b"", made, lambda _: None)

    asked_at = time.monotonic()
    (made,) = yield [make]
    answered_at = time.monotonic()
    if isinstance(made, Exception):
        return Clock(exact=False, offset=time.time() - answered_at, found_at=answered_at)
    # The server took its time somewhere between the two.
    middle = (asked_at + answered_at) / 2
    return Clock(exact=True, offset=made[1].ctime / 1000 - middle, found_at=answered_at)
