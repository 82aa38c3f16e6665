"""Keeps delayed tasks in a worker's main process until it is their turn, under ``on_busy="queue"``.

The main process draws the ticket of a message that it receives (`tickets`), gives it a late time of
its own, and watches on the lock server what the first of its tasks for each key waits for: a ticket
ahead or, if it is one of those that may try, the holders' nodes and the limit. So it hears of a
release, of the end of a dead process's session, of a task that was revoked, and of a raised limit,
and begins the task. Until then, it uses no process. Nothing polls, and a wake that is lost only
costs time: after `kept_seconds`, the task tries by itself.

It renews the tickets, so those of a worker that was killed or stopped soon end. A worker without an
event loop, and one of quorum queues, begins each task at once, and that draws its ticket itself. So
does a task whose limit or ``KEY_PREFIX`` is computed; it waits here once it was put off.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from heapq import heapify
from typing import Any, Final
from weakref import WeakValueDictionary

from celery import bootsteps, signals
from celery.worker import state

from distlock.conf import configuration
from distlock.decorators import Limited, Locked
from distlock.engine.errors import UNKNOWN, NoNode
from distlock.engine.timer import call_later
from distlock.session.programs import Program, asking, each, in_background
from distlock.session.registry import session_for
from distlock.session.session import Session

from .put_off import HEADER, ONCE, Record, kept_seconds, waits_in_worker
from .runs import call_of, locks_of, rules_of
from .tickets import DATA, TTL, Ticket, Turn, has_ended, is_over, line_at, room_for

#: How many messages may wait in a worker. Those beyond draw their tickets in its processes.
MOST: Final = 20_000
#: The seconds after which a message may be handed over to another worker.
SETTLED: Final = 1.0
#: How many tickets are renewed at a time.
BATCH: Final = 100


class Line:
    """The tasks of one key whose messages wait in this process, or whose turn it is.

    Its requests keep it alive. It runs on the session's connection thread.

    :param parent: the path of the tickets' parent
    :param begin: gets the request of a task that may begin
    """

    def __init__(self, session: Session, parent: str, begin: Callable[[Any], None]) -> None:
        self._session = session
        self._parent = parent
        self._begin = begin
        self._holders = ""
        #: With what to call when it is their turn, by the paths of their tickets.
        self._waiting: dict[str, tuple[Turn, Any, Callable[[], None]]] = {}
        #: The requests whose tickets are renewed: also those that wait for a process of the pool.
        self._kept = WeakValueDictionary[str, Any]()
        #: The first ticket at the last look, whose turn is watched for.
        self._watched = ""
        self._looking = self._stale = False
        #: The server's time of the last renewal, in milliseconds.
        self._now = 0
        call_later(TTL / 3, self._renew)
        # Ahead of all that draw: who had to come again would change places.
        in_background(session, asking(partial(session.create_containers, parent)))

    def add(self, turn: Turn, request: Any, then: Callable[[], None]) -> None:
        """Watch for the turn of a message that was received, and call `then`."""
        self._holders = turn.holders
        self._kept[turn.ticket] = request
        self._waiting[turn.ticket] = turn, request, then
        # A look that was under way when all were forgotten may have left an old one as watched.
        if self._watched not in self._waiting or turn.ticket[-10:] <= self._watched[-10:]:
            self.look(turn.ticket)

    def forget(self) -> None:
        """Forget all messages."""
        self._session.soon(self._forget)

    def _forget(self) -> None:
        self._waiting.clear()
        self._kept.clear()

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
        waiting = self._waiting.copy()
        line = yield from line_at(self._session, self._parent)
        for gone in waiting.keys() - set(line):  # it draws another one, unless it was revoked
            self._waiting.pop(gone, None)
            self._begin(waiting[gone][1])
        for ahead, ticket in enumerate(line):
            if ticket not in waiting:
                continue
            turn, _, then = waiting[ticket]
            may_try = ahead < turn.at_a_time
            if may_try and ahead < (yield from room_for(self._session, turn, self.look)):
                if self._waiting.pop(ticket, None):
                    then()
                continue
            self._watched = ticket
            # It may not try before one of these is gone. They may leave in any order.
            last = line[max(ahead - turn.at_a_time, 0) : ahead]
            reads = yield from each([partial(self._session.watch, one, self.look) for one in last])
            for one, (data, stat) in zip(last, reads, strict=True):
                if is_over(data, stat, self._now):  # the head's is found when tickets are renewed
                    yield from has_ended(self._session, one, self._now)
            return

    def _renew(self) -> None:
        call_later(TTL / 3, self._renew)
        self._session.soon(partial(in_background, self._session, self._renews()))

    def _renews(self) -> Program[None]:
        """Renew the tickets, and remove those at the head whose time is over."""
        session, tickets = self._session, list(self._kept)
        for start in range(0, len(tickets), BATCH):
            batch = tickets[start : start + BATCH]
            stats = yield [partial(session.write, ticket, DATA, -1) for ticket in batch]
            for ticket, stat in zip(batch, stats, strict=True):
                if isinstance(stat, NoNode):
                    self._kept.pop(ticket, None)
                elif not isinstance(stat, Exception):
                    self._now = stat.mtime
        for ticket in (yield from line_at(session, self._parent)) if self._now else ():
            if ticket in self._kept or not (yield from has_ended(session, ticket, self._now)):
                break


class Wakes(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Begins tasks in a worker's main process, in the thread of its event loop."""

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._consumer = consumer
        self._lines = WeakValueDictionary[tuple[Session, str], Line]()
        self._due: deque[Any] = deque()
        #: The requests that are kept, by the delivery tags of their messages.
        self._kept = WeakValueDictionary[Any, Any]()
        #: The delivery tags of what the broker has to get back.
        self._lost: deque[str] = deque()
        self._reading, self._writing = os.pipe()  # older kombu's loop has no waker of its own

    def include_if(self, consumer: Any) -> bool:
        """Return whether there is an event loop: it runs consumer, timer and this in one thread."""
        return consumer.hub is not None and waits_in_worker(consumer.app)

    def start(self, consumer: Any) -> None:
        signals.task_received.connect(self._received)

    def stop(self, _: Any) -> None:
        """Leave the tickets to the workers that get the messages next.

        Celery has taken the messages out of its timer. Kombu has tried once to give back what it
        has of Redis, while the connection was lost, and has forgotten it if it could
        (`QoS.restore_unacked_once`): another worker may have it now.
        """
        for tag, request in self._kept.items():
            qos: Any = getattr(request.message.channel, "qos", None)
            if hasattr(qos, "restore_by_tag") and tag in qos._delivered:  # noqa: SLF001
                self._lost.append(tag)
        self._kept.clear()
        self._due.clear()
        for reference in self._lines.valuerefs():  # a copy, which other threads do not change
            if line := reference():
                line.forget()

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        hub.add_reader(self._reading, self._begin_due)
        while self._lost:  # or Redis would keep them for `visibility_timeout`, an hour
            consumer.task_consumer.channel.qos.restore_by_tag(self._lost[0])
            self._lost.popleft()

    def _received(self, request: Any, **_: Any) -> None:
        with suppress(KeyError, TypeError):  # of a run that Celery repeats, as its process died
            del request.request_dict[HEADER]["tickets"]
        turn = turn_of(request)
        if turn is not None:
            session = session_for(turn.using)
            session.soon(partial(self._add, session, turn, request, partial(self._begin, request)))
        elif request.eta is not None or not self._keep(request):
            return
        request.distlock_since = time.monotonic()
        self._kept[request.message.delivery_tag] = request
        self._wake_up()

    def _keep(self, request: Any) -> bool:
        """Keep a message until it is its turn, if it is one of a line; return whether it is."""
        task, locked = request.task, next(iter(locks_of(request.task)), None)
        if locked is None or locked.on_busy != "queue" or _only_the_task_knows(locked):
            return False
        redelivered, qos = request.delivery_info["redelivered"], self._consumer.qos
        full = qos.value >= (getattr(qos, "max_prefetch", None) or math.inf)  # Celery 5.6 and newer
        if full or len(self._consumer.timer) > MOST or (redelivered and not locked.shares):
            return False  # the latter may be a copy of a task that runs, which its run finds out
        try:
            call = call_of(task, request.args, request.kwargs)
            lock = locked.lock(locked.key(*call), *call)
        except Exception:  # noqa: BLE001 - the run raises it again
            return False
        session = session_for(locked.options.using)
        away = session.disconnected_at
        if away and time.monotonic() - away > session.conf.connect_timeout:
            return False
        record, (_, deadline, _) = Record.of(request.request_dict), locked.delays
        seconds = kept_seconds(request.app)
        if deadline is not None:
            seconds = min(seconds, max(deadline - record.waited, 0.0))
        with suppress(KeyError, TypeError):  # the lease lasts so long, and only a run renews it
            seconds = min(seconds, request.request_dict[ONCE]["ttl"] / 2)
        # Celery looks for a time after this, and after that time it begins the task.
        request._eta = datetime.now(timezone.utc) + timedelta(seconds=seconds)  # noqa: SLF001
        request.request_dict[HEADER] = record._asdict()
        draws = [
            (Ticket(session, rule.key, request.id, limited=locked.shares), rule)
            for rule in rules_of(lock)
        ]
        # `soon` keeps the order of arrival, also after an outage.
        session.soon(partial(self._queue, session, request, draws, 0))
        return True

    def _queue(
        self, session: Session, request: Any, draws: Sequence[tuple[Ticket, Any]], number: int
    ) -> None:
        """Wait for the turn under one rule, then under the next, and begin."""
        ticket, lock = draws[number]
        line = self._line(session, ticket.parent, request)

        def then() -> None:
            if number + 1 < len(draws):
                self._queue(session, request, draws, number + 1)
                return
            request.request_dict[HEADER]["tickets"] = [ticket.path for ticket, _ in draws]
            self._begin(request)

        def program() -> Program[None]:
            try:
                yield from ticket.draw(redelivered=request.delivery_info["redelivered"])
            except Exception:
                self._begin(request)
                raise
            line.add(ticket.turn(lock), request, then)

        in_background(session, program())

    def _add(self, session: Session, turn: Turn, request: Any, then: Callable[[], None]) -> None:
        line = self._line(session, turn.ticket.rpartition("/")[0], request)
        line.add(turn, request, then)

    def _line(self, session: Session, parent: str, request: Any) -> Line:
        """Return the line of a request, which keeps it; called on the connection thread."""
        line = self._lines.get((session, parent)) or Line(session, parent, self._begin)
        self._lines[session, parent] = line
        request.__dict__.setdefault("distlock_lines", []).append(line)
        return line

    def _wake_up(self) -> None:
        """End the event loop's pause: it only asks for more messages before the next one.

        Source: ``asynloop`` in ``celery/worker/loops.py``.
        """
        os.write(self._writing, b"\0")

    def _begin(self, request: Any) -> None:
        self._due.append(request)
        self._wake_up()

    def _begin_due(self) -> None:
        os.read(self._reading, 4096)
        due = {id(self._due.popleft()) for _ in range(len(self._due))}
        if not due:
            return
        # Its `queue` is a sorted copy, and what is cancelled stays there until its time.
        waiting = self._consumer.timer._queue  # noqa: SLF001
        living = [one for one in waiting if not one[2].canceled]
        entries = [one[2] for one in living if one[2].args and id(one[2].args[0]) in due]
        for entry in entries:
            entry.cancel()
        waiting[:] = [one for one in living if not one[2].canceled]
        heapify(waiting)
        for entry in entries:
            (request,) = entry.args
            self._kept.pop(request.message.delivery_tag, None)
            if not self._hand_over(request):
                entry()
                for callback in self._consumer.on_task_message:  # autoscaling
                    callback(request)

    def _hand_over(self, request: Any) -> bool:
        """Return a message to its queue for another worker, if all processes here are busy.

        One that has just come is not handed over, so it does not wander between busy workers.
        """
        consumer = self._consumer
        busy = len(state.reserved_requests) >= consumer.pool.num_processes
        settled = time.monotonic() > request.distlock_since + SETTLED
        if not (busy and settled and self._returns_in_front(request)):
            return False
        consumer.qos.decrement_eventually()  # as the timer does when it begins one
        consumer.qos.update()  # or the broker might think that this worker has room
        state.task_ready(request)
        request.reject(requeue=True)
        return True

    def _returns_in_front(self, request: Any) -> bool:
        """Return whether a message that is returned is the next one.

        RabbitMQ puts it back in its place, Redis behind all others.
        """
        if self._consumer.connection.transport.driver_type == "amqp":
            return True
        channel, way = self._consumer.task_consumer.channel, request.delivery_info
        queues = channel._lookup(way["exchange"], way["routing_key"])  # noqa: SLF001
        return not any(map(channel._size, queues))  # noqa: SLF001


def turn_of(request: Any) -> Turn | None:
    """Return the turn for which a delayed task waits, None if its message names none."""
    try:
        return Turn(*request.request_dict[HEADER]["turn"])
    except (KeyError, TypeError):
        return None


def _only_the_task_knows(locked: Locked) -> bool:
    """Return whether a function computes its limit or ``KEY_PREFIX``: it may ask for the tenant."""
    computes_limit = isinstance(locked.kind, Limited) and any(map(callable, locked.kind.limits))
    return computes_limit or "." in configuration(locked.options.using).key_prefix
