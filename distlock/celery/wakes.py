"""Begins delayed tasks as soon as it is their turn, under ``on_busy="queue"``.

A delayed message waits for its time in a worker's main process, which watches on the lock server
what the first of its tasks for each key waits for: a ticket ahead or, if it is one of those that
may try, the holders' nodes and the limit. So it hears of a release, of the end of a dead process's
session, of a task that was revoked, and of a raised limit, and begins the task. Nothing polls, and
a wake that is lost only costs time: the message keeps its own. There are no wakes in a worker
without an event loop, nor for messages that wait at the broker, as those of quorum queues do.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from celery import bootsteps, signals
from kombu.utils.compat import detect_environment

from distlock.engine.errors import UNKNOWN, NoNode
from distlock.session.programs import Program, in_background
from distlock.session.registry import session_for
from distlock.session.session import Session

from .put_off import HEADER, pause_limits
from .tickets import Turn, line_at, room_for


def pause_per_ticket(app: Any) -> float:
    """Return the longest pause for each ticket ahead, in units of ``RETRY_AFTER``."""
    transport = app.producer_pool.connections.connection.transport
    loops = detect_environment() == "default" and transport.implements.asynchronous
    return 2.0 if loops and not pause_limits(app)[0] else 0.5


class Line:
    """The delayed tasks of one key whose messages wait in this process.

    It lives as long as it watches something, on the session's connection thread.

    :param holders: the path of the holders' nodes
    :param begin: gets the request of a task that may begin
    """

    def __init__(self, session: Session, holders: str, begin: Callable[[Any], None]) -> None:
        self._session = session
        self._holders = holders
        self._begin = begin
        #: By the paths of their tickets.
        self._waiting: dict[str, tuple[Turn, Any]] = {}
        #: The first ticket at the last look, whose turn is watched for.
        self._watched = ""
        self._looking = self._stale = False

    def add(self, turn: Turn, request: Any) -> None:
        """Watch for the turn of a message that was received."""
        self._waiting[turn.ticket] = turn, request
        if turn.ticket[-10:] <= self._watched[-10:] or not self._watched:
            self.look(turn.ticket)

    def look(self, _: object) -> None:
        """Look whose turn it is, now or at the end of a look that is under way."""
        self._stale = True
        if not self._looking:
            self._looking = True
            in_background(self._session, self._looks())

    def _looks(self) -> Program[None]:
        try:
            while self._stale and self._waiting:
                self._stale, self._watched = False, ""
                try:
                    yield from self._look()
                except (NoNode, *UNKNOWN):  # a ticket has just gone, or the connection
                    self._stale = True
        finally:
            self._looking = False
        if not self._waiting:
            for children in (False, True):
                self._session.unwatch(self._holders, self.look, children=children)

    def _look(self) -> Program[None]:
        known = list(self._waiting)
        line = yield from line_at(self._session, known[0].rpartition("/")[0])
        for gone in set(known).difference(line):
            del self._waiting[gone]
        ahead = next((n for n, ticket in enumerate(line) if ticket in self._waiting), None)
        if ahead is None:
            return
        turn, request = self._waiting[line[ahead]]
        may_try = ahead < turn.at_a_time
        if may_try and ahead < (yield from room_for(self._session, turn, self.look)):
            del self._waiting[turn.ticket]
            self._begin(request)
            self._stale = True
            return
        self._watched = turn.ticket
        if ahead:
            blocking = line[max(ahead - turn.at_a_time, 0)]
            yield partial(self._session.watch, blocking, self.look)


class Wakes(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Begins tasks in a worker's main process, in the thread of its event loop."""

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer = consumer.timer
        self._lines = WeakValueDictionary[tuple[Session, str], Line]()
        self._due: deque[Any] = deque()
        self._reading, self._writing = os.pipe()  # older kombu's loop has no waker of its own

    def include_if(self, consumer: Any) -> bool:
        """Return whether there is an event loop: it runs consumer, timer and this in one thread."""
        return consumer.hub is not None

    def start(self, consumer: Any) -> None:
        signals.task_received.connect(self._received)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        hub.add_reader(self._reading, self._begin_due)

    def _received(self, request: Any, **_: Any) -> None:
        try:
            turn = Turn(*request.request_dict[HEADER]["turn"])
        except (KeyError, TypeError):  # not delayed in a line
            return
        session = session_for(turn.using)
        new = Line(session, turn.holders, self._begin)
        line = self._lines.setdefault((session, turn.holders), new)
        session.soon(partial(line.add, turn, request))

    def _begin(self, request: Any) -> None:
        self._due.append(request)
        os.write(self._writing, b"\0")

    def _begin_due(self) -> None:
        os.read(self._reading, 4096)
        due = {id(self._due.popleft()) for _ in range(len(self._due))}
        for _, _, entry in self._timer.queue:
            if entry.args and id(entry.args[0]) in due and not entry.canceled:
                entry.cancel()
                entry()
