"""Keeps ten minutes of history for each lock of this process, for the admin page.

Its receivers use the app's signals, as any site could. The first request that a process serves
connects them, and only if ``django.contrib.admin`` is installed: a worker or a command pays
nothing, and the page can show events from before it was opened.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from django.core.signals import request_started

from distlock import signals
from distlock.inspection.state import LEADER, LEASES
from distlock.keys import templates
from distlock.process import in_child

from .sparkline import Sparkline, sparkline

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.dispatch import Signal

#: The number of buckets of a history, and the seconds of each.
BUCKETS: Final = 60
BUCKET_SECONDS: Final = 10
#: The number of keys with a history: those used last.
KEYS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Some seconds of a lock's history. Times are seconds.

    :ivar holds: the number of acquires, without reentry
    :ivar busy: the number of acquires that ended without it
    :ivar lost: the number of lost holds
    :ivar waited: the sum of all waits, with or without success
    :ivar longest_wait: the longest of these waits
    :ivar longest_hold: the longest of the released holds
    """

    holds: int = 0
    busy: int = 0
    lost: int = 0
    waited: float = 0.0
    longest_wait: float = 0.0
    longest_hold: float = 0.0

    @property
    def mean_wait(self) -> float:
        """The mean of all waits, with or without success."""
        return self.waited / max(self.holds + self.busy, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The use of a lock by this process alone.

    :ivar total: all buckets as one
    :ivar buckets: the oldest first; the last is not over yet
    :ivar seconds: the observed time, at most ten minutes
    """

    total: Bucket
    buckets: tuple[Bucket, ...]
    seconds: float

    def __bool__(self) -> bool:
        return self.total != Bucket()

    @property
    def minutes(self) -> int:
        """`seconds` as started minutes."""
        return int(-(-self.seconds // 60)) or 1

    @property
    def uses(self) -> Sparkline:
        """The number of acquires of each bucket."""
        return sparkline([bucket.holds for bucket in self.buckets])

    @property
    def waits(self) -> Sparkline:
        """The longest wait of each bucket."""
        return sparkline([bucket.longest_wait for bucket in self.buckets])


def of(lock: str, using: str = "default") -> History:
    """Return the history of a lock, an empty one if unknown, without asking the server.

    A lock, a semaphore, a lease and a leader of one key have one history: signals name the key.

    :param lock: the key, or the `name` of a lock
    :param using: the alias in ``DISTLOCK``
    :raises LockKeyError: `lock` is empty or no valid text
    """
    name = lock.removeprefix(LEADER).removeprefix(f"{LEASES}/")
    now = monotonic()
    with _lock:
        rows = _rows.get((using, name)) or _rows.get((using, templates.znode_name(lock))) or ()
        found = {row.number: row.bucket() for row in rows}
        seconds = 0.0 if _begun_at is None else now - _begun_at
    last = _number(now)
    buckets = tuple(found.get(number, _NOTHING) for number in range(last - BUCKETS + 1, last + 1))
    return History(
        total=_sum(buckets), buckets=buckets, seconds=min(seconds, BUCKETS * BUCKET_SECONDS)
    )


def _sum(buckets: tuple[Bucket, ...]) -> Bucket:
    return Bucket(
        holds=sum(bucket.holds for bucket in buckets),
        busy=sum(bucket.busy for bucket in buckets),
        lost=sum(bucket.lost for bucket in buckets),
        waited=sum(bucket.waited for bucket in buckets),
        longest_wait=max(bucket.longest_wait for bucket in buckets),
        longest_hold=max(bucket.longest_hold for bucket in buckets),
    )


_NOTHING: Final = Bucket()


# --- the receivers -------------------------------------------------------------------------------


class _Row:
    """The bucket of the current seconds."""

    __slots__ = ("busy", "holds", "longest_hold", "longest_wait", "lost", "number", "waited")

    def __init__(self, number: int) -> None:
        self.number = number
        self.holds = self.busy = self.lost = 0
        self.waited = self.longest_wait = self.longest_hold = 0.0

    def bucket(self) -> Bucket:
        return Bucket(
            holds=self.holds,
            busy=self.busy,
            lost=self.lost,
            waited=self.waited,
            longest_wait=self.longest_wait,
            longest_hold=self.longest_hold,
        )

    def wait(self, seconds: float) -> None:
        self.waited += seconds
        self.longest_wait = max(self.longest_wait, seconds)


#: The buckets that are not empty, by alias and znode name, which is never long.
_rows: OrderedDict[tuple[str, str], deque[_Row]] = OrderedDict()
#: Reentrant, since a signal handler that releases locks may interrupt a receiver.
_lock = threading.RLock()
_begun_at: float | None = None


def _number(now: float) -> int:
    return int(now // BUCKET_SECONDS)


def _row(key: str, using: str) -> _Row:
    """Return the current bucket. Call this, and fill the bucket, under `_lock`."""
    where = using, templates.znode_name(key)
    number = _number(monotonic())
    rows = _rows.get(where)
    if rows is None:
        rows = _rows[where] = deque(maxlen=BUCKETS)
        if len(_rows) > KEYS:
            _rows.popitem(last=False)
    else:
        _rows.move_to_end(where)
    if not rows or rows[-1].number != number:
        rows.append(_Row(number))
    return rows[-1]


def _acquired(*, key: str, waited: float, using: str, **_: Any) -> None:
    with _lock:
        row = _row(key, using)
        row.holds += 1
        row.wait(waited)


def _contended(*, key: str, waited: float, using: str, **_: Any) -> None:
    with _lock:
        row = _row(key, using)
        row.busy += 1
        row.wait(waited)


def _released(*, key: str, held_for: float, using: str, **_: Any) -> None:
    with _lock:
        row = _row(key, using)
        row.longest_hold = max(row.longest_hold, held_for)


def _lost(*, key: str, using: str, **_: Any) -> None:
    with _lock:
        _row(key, using).lost += 1


# --- the start -----------------------------------------------------------------------------------

_RECEIVERS: Final[dict[Signal, Callable[..., None]]] = {
    signals.lock_acquired: _acquired,
    signals.lock_contended: _contended,
    signals.lock_released: _released,
    signals.lock_lost: _lost,
}
_WHO: Final = "distlock.history"


def connect() -> None:
    """Begin at the first request. Repeating it is fine: runserver calls ``ready`` twice."""
    if _begun_at is None:
        request_started.connect(_begin, dispatch_uid=_WHO)


def _begin(**_: Any) -> None:
    global _begun_at  # noqa: PLW0603 - the process has one history
    with _lock:
        request_started.disconnect(dispatch_uid=_WHO)
        if _begun_at is None:
            _begun_at = monotonic()
            for signal, receiver in _RECEIVERS.items():
                signal.connect(receiver, dispatch_uid=_WHO)


@in_child
def _forget_the_parent() -> None:
    """In a forked child: begin with an empty history."""
    global _lock, _begun_at  # noqa: PLW0603 - a thread of the parent may have held it at the fork
    _lock = threading.RLock()
    _rows.clear()
    if _begun_at is not None:
        _begun_at = monotonic()
