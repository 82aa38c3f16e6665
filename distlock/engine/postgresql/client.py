"""A client whose server is PostgreSQL; see `distlock.engine.protocol.EngineClient`.

It calls functions of the server, each a transaction by itself, in libpq's pipeline mode: requests
go out without waiting for answers, and are answered in order. Every answer to a session brings
the events that it has not heard yet. In between the server rings by ``NOTIFY``. A pooler brings no
such messages, so there the client looks for events itself, while it watches anything.
"""

from __future__ import annotations

import json
import random
import secrets
import select
import time
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import pq

from distlock.engine.deadline import now
from distlock.engine.guard import guarded
from distlock.engine.kazoo import ConnectionDropped
from distlock.engine.own_client import OwnClient
from distlock.engine.reply import Reply, ignore
from distlock.engine.serving import no_answer

from .errors import PostgresRefused, error_of, refusal
from .requests import EVENTS, EXPIRE, FUNCTIONS, Request, Requests, also_told, joining
from .server import connect, is_direct, limits_of, unknown_ms, where

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import Configuration

#: The first and the longest pause between two looks for events, in seconds.
_SHORTEST_LOOK: Final = 0.004
_LONGEST_LOOK: Final = 0.25

_COMMANDS: Final = {
    name: f"SELECT events, refusal, answer FROM distlock_{name}({types})".encode()  # noqa: S608
    for name, types in FUNCTIONS.items()
}
_CLOSE: Final = b"SELECT null, null, to_jsonb(distlock_close($1::bigint, $2::text))"


#: Settings, of the role or of the server, that could end or forget what locks need.
_SETTINGS: Final = (
    "statement_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
    "default_transaction_isolation",
    "synchronous_commit",  # for leases; nothing else waits for a disk
)


class PostgresClient(OwnClient, Requests):
    """One connection that keeps itself up, and its session of the moment."""

    usual = (PostgresRefused, psycopg.Error)
    joining = staticmethod(joining)

    def __init__(self, conf: Configuration, changed: Callable[[bool, int], None]) -> None:
        super().__init__(conf, changed, where(conf))
        self._pg: Any = None
        #: Whether no pooler is in between, so that the server can ring.
        self._direct = True
        #: The result of the request that is being answered.
        self._result: Any = None
        #: Whether the server has rung since the events were last taken.
        self._rung = False
        #: Whether the server has warned of something.
        self._warning = False
        #: When the session is renewed next, and the pause before the next look for events.
        self._renew_at = 0.0
        self._look_pause = _SHORTEST_LOOK

    # --- connecting ------------------------------------------------------------------------------

    def _refused(self, error: BaseException) -> BaseException | None:
        return refusal(error, self._where)

    def _connect(self) -> None:
        link = connect(self._conf, self._patience)
        try:
            connection = link.connection
            self._direct = is_direct(self._conf, connection)
            if self._direct:
                limits = limits_of(self.session_timeout)
                connection.execute("SET statement_timeout = 0")  # for the next one, too
                connection.execute(
                    "SELECT set_config(name, coalesce(%s::jsonb ->> name, boot_val), false) "
                    "FROM pg_settings WHERE name = ANY(%s)",
                    (json.dumps(limits), [*_SETTINGS, *limits]),
                )
            self._begin(connection)
            pg = connection.pgconn
            pg.notice_handler = self._warned
            if self._direct:
                for name, command in _COMMANDS.items():
                    pg.prepare(name.encode(), command)
            pg.nonblocking = 1
            pg.enter_pipeline_mode()
            link.ready = True
            self._socket = link
        except BaseException:
            link.close()
            raise
        self._pg, self._result, self._rung, self._warning = pg, None, False, False
        self._renew_at = time.monotonic() + self.session_timeout / self.pings
        self._look_pause = _SHORTEST_LOOK

    def _begin(self, connection: psycopg.Connection[Any]) -> None:
        """Carry on the session if it lives, and begin another one if not."""
        if self.session_id and not self._calls(connection, fresh=False):
            guarded(self._changed, False, 0)
            self.session_id = 0
        if not self.session_id:
            self.session_id = secrets.randbits(62) | 1 << 61
            self.password = secrets.token_hex(16).encode()
            self._calls(connection, fresh=True)

    def _calls(self, connection: psycopg.Connection[Any], *, fresh: bool) -> bool:
        """Return whether the session lives."""
        self._number += 1
        sent_at = now()
        row = connection.execute(
            "SELECT distlock_connect(%s, %s, %s, %s, %s, %s, %s)",
            (
                self.session_id,
                self.password.hex(),
                self._number,
                self._direct,
                fresh,
                round(self.session_timeout * 1000),
                round(unknown_ms(self._conf)),
            ),
        ).fetchone()
        self.renewed_at = sent_at
        return bool(row and row[0])

    # --- serving ---------------------------------------------------------------------------------

    def _send_all(self, queue: Any, timeout: float) -> None:
        while queue:
            request, reply = queue.popleft()
            try:
                self._send(request)
            except psycopg.Error:  # the connection is lost: the caller is told of that
                self._pending.append((request, reply))
                raise
            except Exception as error:  # noqa: BLE001 - goes to the caller
                if reply is not None:
                    reply.set_exception(error)
                continue
            self._pending.append((request, reply))
        self._finish(b"", timeout)

    def _send(self, request: Request) -> None:
        session: tuple[str, ...] = ()
        if request.call != "expire":
            session = str(self.session_id), self.password.hex(), str(self._number)
        arguments = [one.encode() for one in (*session, *request.arguments)]
        if request.call == "close":
            self._pg.send_query_params(_CLOSE, arguments[:2])
        elif self._direct:
            self._pg.send_query_prepared(request.call.encode(), arguments)
        else:
            self._pg.send_query_params(_COMMANDS[request.call], arguments)
        self._pg.pipeline_sync()

    def _finish(self, message: bytes, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self._pg.flush():
            ready = select.poll()
            ready.register(self._socket, select.POLLOUT | select.POLLIN)
            if not ready.poll(max(deadline - time.monotonic(), 0) * 1000):
                raise ConnectionDropped("A request could not be sent in time.")
            self._pg.consume_input()

    def _receive(self) -> None:
        pg = self._pg
        pg.consume_input()
        while self._pending and not pg.is_busy() and not self.closed_session:
            result = pg.get_result()
            if result is None:
                continue
            if result.status != pq.ExecStatus.PIPELINE_SYNC:
                self._result = result
                continue
            if self._warning:
                raise ConnectionDropped("The server warns.")
            request, reply = self._pending.popleft()
            if reply is None:  # to the request that ends the session
                self.closed_session = True
            else:
                self._settle(request, reply, self._result)
        while (note := pg.notifies()) is not None:
            self._rung = True
            if note.extra == b"P":
                self.ping()
        # The answers to come bring the events, but for this one.
        if self._rung and all(request is EXPIRE for request, _ in self._pending):
            self._take_events()
            self._rung = False
        if pg.status == pq.ConnStatus.BAD:
            raise ConnectionDropped("The server has closed the connection.")

    def watch(self, request: Any) -> None:
        super().watch(request)
        self._look_pause = _SHORTEST_LOOK
        if not self._direct:
            self._ping_at = min(self._ping_at, time.monotonic() + self._look_pause)

    def _warned(self, _: object) -> None:
        """Hear, for example, that a commit did not wait for standbys (``SyncRepWaitForLSN``)."""
        self._warning = True

    def _take_events(self) -> None:
        self._queue.append((EVENTS, Reply(ignore, None, lambda _: None, self.session_id)))

    def _settle(self, request: Request, reply: Reply, result: Any) -> None:
        value: Any = None
        told: Any = None
        error: BaseException | None = None
        if result.status == pq.ExecStatus.TUPLES_OK:
            events, refused, answer = (result.get_value(0, column) for column in range(3))
            for event in json.loads(events) if events else ():
                self._look_pause = _SHORTEST_LOOK
                guarded(self.fire, *event)
            told = json.loads(answer) if answer else None
            try:
                value = request.read(refused.decode() if refused else None, told)
            except Exception as refusal:  # noqa: BLE001 - goes to the caller
                error = refusal
        else:
            error = error_of(result, self._where)
            if isinstance(error, ConnectionDropped):
                self._pending.appendleft((request, reply))  # to fail with the others
                raise error
            self._rung = self._direct and request is not EVENTS  # an error brings none
        if error is None and request.watcher is not None:
            self.watch(request)
        beside = {} if error else also_told(request, told)
        self.deliver(beside, reply.settle, None if error else value, error)

    def _renew(self, reply: Reply) -> None:
        self._renew_at = time.monotonic() + self.session_timeout / self.pings
        self._queue.append((self.proof("", by_write=True), reply))

        def expired(milliseconds: Any, error: BaseException | None) -> None:
            if error is None and milliseconds is not None:
                self._plan(max(milliseconds, 0) / 1000)

        self._queue.append((EXPIRE, Reply(expired, None, lambda _: None, self.session_id)))

    def _plan(self, seconds: float) -> None:
        super()._plan(seconds)
        self._renew_at = min(self._renew_at, max(self._ping_at, time.monotonic()))

    def _ping(self, timeout: float) -> None:
        if self._direct or time.monotonic() >= self._renew_at:
            super()._ping(timeout)
        if not self._direct and (self._data_watchers or self._child_watchers):
            if not self._pending:
                self._take_events()
            pause = self._look_pause * random.uniform(0.7, 1.3)  # noqa: S311 - jitter
            self._look_pause = min(self._look_pause * 1.15, _LONGEST_LOOK)
            self._ping_at = min(self._ping_at, time.monotonic() + pause)

    # --- what a session uses ---------------------------------------------------------------------

    @staticmethod
    def _good_bye() -> Request:
        return Request("close")

    def explain(self, error: BaseException | None, away: str = "") -> str:
        if isinstance(error, PostgresRefused):
            return str(error)
        if error is None:
            pooler = "" if self._direct else ", and has the pooler a connection free"
            return f"{no_answer(self._where, away)} Is it running, and reachable{pooler}?"
        return f"{self._where} could not serve the request: {error!r}."
