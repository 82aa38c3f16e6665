"""Writes events to the database, on one thread for each process that has any.

Callers only put an event into a queue. The thread writes a batch about once a second, so a killed
process takes its last second with it. A batch that the database refuses is dropped. The log says so
at the first one, and how many events were lost when writing works again.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from django.conf import settings
from django.db import close_old_connections, router, transaction
from django.utils.timezone import make_naive

from distlock import process
from distlock.conf import configuration
from distlock.inspection.state import LEADER
from distlock.keys.templates import znode_name
from distlock.keys.znodes import read_json, text_in
from distlock.logs.loggers import safe
from distlock.models import LockEvent
from distlock.text import printable

logger = safe(logging.getLogger("distlock"))

#: The seconds between two batches, and the most rows of one.
BATCH_SECONDS: Final = 1.0
BATCH: Final = 500
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
            owner=_cut(_who(self.owner)),
            hostname=_cut(process.this.host),
            pid=process.this.pid,
            token=self.token,
            detail=_cut(self.detail, LockEvent.LONGEST_DETAIL),
        )


def _cut(text: str, most: int = LockEvent.LONGEST) -> str:
    return printable(text, most - 1)  # without the mark of the cut


def _who(owner: bytes | str) -> str:
    """Return an owner in words, without its host and process, which have columns of their own."""
    if isinstance(owner, str):
        return owner
    said = read_json(owner)
    label, worker = text_in(said.get("label")), text_in(said.get("worker"))
    return (
        f"{label} ({worker})" if label and worker else label or worker or text_in(said.get("owner"))
    )


class Recorder:
    """The events of this process that wait to be written, and the thread that writes them."""

    def __init__(self) -> None:
        # Unlike other queues, a signal handler may put into it on top of a put.
        self._events: SimpleQueue[Event | threading.Event] = SimpleQueue()
        #: The events that were not written, about: no lock protects the count.
        self.dropped = 0
        #: The rows written since an alias was pruned.
        self._unpruned: dict[str, int] = {}
        #: A thread takes this to become the one that writes.
        self._role = [self]
        self._hurry = threading.Event()
        #: Whether the last batch was refused, and that was logged.
        self._failing = False

    # --- for callers -----------------------------------------------------------------------------

    def record(self, event: Event) -> None:
        """Record an event, soon. Never blocks."""
        if self._events.qsize() < MOST:
            self._events.put(event)
        else:
            self.dropped += 1
        if self._role:
            process.at_end_of_child(flush, priority=90)  # after the sessions
            # Not with Thread.start(), which takes a lock that an interrupted line may hold.
            with suppress(RuntimeError):  # there can be no thread: Python shuts down
                _thread.start_new_thread(self._run, ())

    def flush(self, timeout: float = END_SECONDS) -> bool:
        """Write what is there, and wait for that; return whether it was tried in time."""
        if self._role and self._events.empty():
            return True
        written = threading.Event()
        self._events.put(written)
        self._hurry.set()
        return written.wait(timeout)

    # --- on the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._role.pop()
        except IndexError:  # another thread was faster
            return
        threading.current_thread().name = "distlock-history"
        while True:
            found = [self._events.get()]
            if self._events.qsize() < BATCH:
                self._hurry.wait(BATCH_SECONDS)
            with suppress(Empty):
                while len(found) < BATCH:
                    found.append(self._events.get_nowait())
            if events := [one for one in found if isinstance(one, Event)]:
                self._write(events)
            if self._events.empty():
                self._hurry.clear()
            for one in found:
                if isinstance(one, threading.Event):
                    one.set()

    def _write(self, events: Sequence[Event]) -> None:
        try:
            close_old_connections()
            database = router.db_for_write(LockEvent)
            transaction.set_autocommit(True, using=database)
            LockEvent.objects.using(database).bulk_create([event.row() for event in events])
            self._prune(database, Counter(event.using for event in events))
            if self._failing:
                self._failing = False
                logger.warning(
                    "The history of locks can be written again. Events lost so far: %d.",
                    self.dropped,
                )
        except Exception as error:  # noqa: BLE001 - the thread must go on
            self.dropped += len(events)
            self._log(error)
        try:
            close_old_connections()
        except Exception as error:  # noqa: BLE001 - as above
            self._log(error)

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
                "its table. Events are lost meanwhile.",
                error,
            )


_recorder = Recorder()


def record(event: Event) -> None:
    """Record an event of this process, but not in a test run, whose database is not ours."""
    if not process.is_test_run():
        _recorder.record(event)


def flush() -> None:
    """Write what is there, within `END_SECONDS`, at the end of a process."""
    _recorder.flush()


@process.in_child
def _forget_the_parent() -> None:
    """In a forked child: the parent writes its own events."""
    global _recorder  # noqa: PLW0603 - one per process
    _recorder = Recorder()


atexit.register(flush)
