"""Keeps the last events of all locks and processes in the database, as a slow-query log does.

Receivers of the app's signals, connected if an alias has the setting ``HISTORY``, make an event of
what is worth a row, and count the rest (`minutes`). A signal handler may interrupt any line and
send a signal itself, so callers take no lock. One thread of each process writes the events about
once a second, so a killed process takes its last second with it, and the counts once a minute. A
batch that the database refuses is dropped.
"""

from __future__ import annotations

import _thread
import atexit
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.core.signals import setting_changed
from django.db import close_old_connections, router, transaction
from django.db.models import Model
from django.dispatch import Signal, receiver
from django.utils.timezone import make_naive

from distlock import minutes, process, signals
from distlock.conf import configuration
from distlock.exceptions import DeadlockDetected
from distlock.inspection.state import LEADER
from distlock.keys.templates import znode_name
from distlock.keys.znodes import owner_in
from distlock.lease.hold import LeaseHold
from distlock.logs.loggers import logger
from distlock.models import LockEvent, LockMinute
from distlock.owner.hold import REASONS, Hold, grant_of
from distlock.owner.owner import current
from distlock.text import printable

#: The seconds between two batches, and the most rows of one.
BATCH_SECONDS: Final = 1.0
BATCH: Final = 500
#: The seconds between two looks for minutes that are over.
MINUTE_SECONDS: Final = 15.0
#: The most events that wait to be written.
MOST: Final = 5000
#: The most seconds by which writing the rest delays the end of a process.
END_SECONDS: Final = 2.0
#: An alias is pruned after this part of its bound was written.
_PART: Final = 10


class Event(NamedTuple):
    """An event, as far as its caller knows it.

    :ivar owner: the data of its node, or a text
    """

    kind: LockEvent.Kind
    using: str
    key: str
    at: float
    owner: bytes | str = b""
    waited: float | None = None
    held_for: float | None = None
    token: int | None = None
    detail: str = ""

    def row(self) -> LockEvent:
        """Return the event as a row of this process."""
        at, key = datetime.fromtimestamp(self.at, timezone.utc), self.key.removeprefix(LEADER)
        return LockEvent(
            kind=self.kind,
            using=self.using,
            key=_cut(key),
            name=LockEvent.place(key and znode_name(key)),
            at=at if settings.USE_TZ else make_naive(at),
            waited=self.waited,
            held_for=self.held_for,
            # In words, without its host and process, which have columns of their own.
            owner=_cut(self.owner if isinstance(self.owner, str) else owner_in(self.owner)),
            hostname=_cut(process.this.host),
            pid=process.this.pid,
            token=self.token,
            detail=_cut(self.detail, LockEvent.LONGEST_DETAIL),
        )


def _cut(text: str, most: int = LockEvent.LONGEST) -> str:
    return printable(text, most - 1)  # without the mark of the cut


class Recorder:
    """The events of this process that wait to be written, and the thread that writes them."""

    def __init__(self) -> None:
        # Unlike other queues, a signal handler may put into it on top of a put.
        self._events: SimpleQueue[Event | threading.Event] = SimpleQueue()
        #: The events that were not written, about: no lock protects the count.
        self.dropped = 0
        self._counts = minutes.Counts()
        #: The rows written since an alias was pruned.
        self._unpruned: dict[str, int] = {}
        #: A thread takes this to become the one that writes.
        self._role = [self]
        self._hurry = threading.Event()
        #: Whether the last batch was refused, and that was logged.
        self._failing = False

    def record(self, event: Event) -> None:
        """Record an event, soon. Never blocks."""
        if self._events.qsize() < MOST:
            self._events.put(event)
        else:
            self.dropped += 1
        self._start()

    def count(self, using: str, template: str, counted: Mapping[str, float]) -> None:
        """Count one more of each kind, with its seconds. Never blocks."""
        for kind, seconds in counted.items():
            self._counts.add(using, template, kind, seconds)
        self._start()

    def _start(self) -> None:
        if self._role:
            process.at_end_of_child(flush, priority=90)  # after the sessions
            # Not with Thread.start(), which takes a lock that an interrupted line may hold.
            with suppress(RuntimeError):  # there can be no thread: Python shuts down
                _thread.start_new_thread(self._run, ())

    def flush(self, timeout: float = END_SECONDS) -> bool:
        """Write what is there, and wait for that; return whether it was tried in time."""
        if self._role and self._events.empty() and not self._counts:
            return True
        written = threading.Event()
        self._events.put(written)
        self._hurry.set()
        return written.wait(timeout)

    def _run(self) -> None:
        try:
            self._role.pop()
        except IndexError:  # another thread was faster
            return
        threading.current_thread().name = "distlock-history"
        while True:
            found: list[Event | threading.Event] = []
            with suppress(Empty):
                found.append(self._events.get(timeout=MINUTE_SECONDS))
                if self._events.qsize() < BATCH:
                    self._hurry.wait(BATCH_SECONDS)
                while len(found) < BATCH:
                    found.append(self._events.get_nowait())
            waiting = [one for one in found if isinstance(one, threading.Event)]
            if events := [one for one in found if isinstance(one, Event)]:
                self._write(LockEvent, partial(self._write_events, events), len(events))
            if counts := self._counts.take(unfinished=bool(waiting)):
                self._write(LockMinute, partial(minutes.write, counts))
            if self._events.empty():
                self._hurry.clear()
            for one in waiting:
                one.set()

    def _write(self, model: type[Model], write: Callable[[str], object], events: int = 0) -> None:
        try:
            close_old_connections()
            database = router.db_for_write(model)
            transaction.set_autocommit(True, using=database)
            write(database)
            if self._failing:
                self._failing = False
                logger.warning(
                    "The history of locks can be written again. Events lost so far: %d.",
                    self.dropped,
                )
        except Exception as error:  # noqa: BLE001 - the thread must go on
            self.dropped += events
            self._log(error)
        try:
            close_old_connections()
        except Exception as error:  # noqa: BLE001 - as above
            self._log(error)

    def _write_events(self, events: Sequence[Event], database: str) -> None:
        LockEvent.objects.using(database).bulk_create([event.row() for event in events])
        self._prune(database, Counter(event.using for event in events))

    def _prune(self, database: str, written: Counter[str]) -> None:
        """Delete the oldest rows of an alias: first, and each time that a part of it is new."""
        for using, count in written.items():
            bound = configuration(using).history
            self._unpruned[using] = self._unpruned.get(using, bound) + count
            if 0 < bound <= _PART * self._unpruned[using]:
                self._unpruned[using] = 0
                rows = LockEvent.objects.using(database).filter(using=using)
                for oldest in rows.order_by("-id").values_list("id", flat=True)[bound : bound + 1]:
                    rows.filter(id__lte=oldest).delete()

    def _log(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            logger.error(
                "The history of locks cannot be written: %s. `manage.py migrate distlock` makes "
                "its tables. Events are lost meanwhile.",
                error,
            )


_recorder = Recorder()


def record(event: Event) -> None:
    """Record an event of this process, but not in a test run, whose database is not ours."""
    if not process.is_test_run():
        _recorder.record(event)


def count(key: str, using: str, template: str, **counted: float) -> None:
    """Count one more of each of these kinds, with its seconds."""
    # Candidates for a leadership wait for hours, and nobody waits for them.
    if not (key.startswith(LEADER) or process.is_test_run()):
        _recorder.count(using, template, counted)


def flush() -> None:
    """Write what is there, within `END_SECONDS`, at the end of a process."""
    _recorder.flush()


@process.in_child
def _forget_the_parent() -> None:
    """In a forked child: the parent writes its own events."""
    global _recorder  # noqa: PLW0603 - one per process
    _recorder = Recorder()


atexit.register(flush)


Kind: Final = LockEvent.Kind


def _released(*, hold: Hold, held_for: float, using: str, template: str, **_: Any) -> None:
    conf = configuration(using)
    if not conf.history:
        return
    # The wait, too: a receiver of `lock_acquired` would cost more than all counts do.
    count(hold.key, using, template, wait=hold.waited, hold=held_for)
    slow = max(hold.waited, held_for) >= conf.history_slow
    if slow and not hold.lost_reason:  # that its loss has told
        record(_of(hold, Kind.HELD, held_for, "Shared." if hold.shared else ""))


def _lost(*, hold: Hold, reason: str, using: str, template: str, **_: Any) -> None:
    if configuration(using).history:
        kind = Kind.BROKEN if reason == "broken" else Kind.LOST
        count(hold.key, using, template, **{kind.value: 0.0})
        held_for = (datetime.now(timezone.utc) - hold.acquired_at).total_seconds()
        record(_of(hold, kind, held_for, f"Lost: {REASONS[reason]}."))


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


def _in_vain(
    *, key: str, waited: float, using: str, template: str, error: Exception | None = None, **_: Any
) -> None:
    conf = configuration(using)
    if conf.history:
        kind = Kind.DEADLOCK if isinstance(error, DeadlockDetected) else Kind.FAILED
        kind = kind if error else Kind.BUSY
        count(key, using, template, **{"wait": waited, kind.value: 0.0})
        record(
            Event(
                kind,
                using,
                key,
                time.time(),
                owner=current().describe(conf),
                waited=waited,
                detail=str(error or ""),
            )
        )


_RECEIVERS: Final[dict[Signal, Callable[..., None]]] = {
    signals.lock_released: _released,
    signals.lock_lost: _lost,
    signals.lock_contended: _in_vain,
    signals.lock_failed: _in_vain,
}


def connect() -> None:
    """Receive signals if an alias keeps a history."""
    for signal, handler in _RECEIVERS.items():
        change = signal.connect if is_kept() else signal.disconnect
        change(handler, dispatch_uid="distlock.history")


def is_kept() -> bool:
    """Return whether an alias keeps a history; the settings may be wrong."""
    aliases = getattr(settings, "DISTLOCK", None)
    options = aliases.values() if isinstance(aliases, Mapping) else ()
    return any(isinstance(one, Mapping) and one.get("HISTORY") for one in options)


@receiver(setting_changed)
def _settings_changed(*, setting: str, **_: Any) -> None:
    if setting == "DISTLOCK":
        connect()
