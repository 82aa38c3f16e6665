"""A client whose server is Redis; see `distlock.engine.protocol.EngineClient`.

As there, everything happens on the connection thread, which connects, serves, and connects again:
requests are answered in order, watches fire between the answers where the changes were, and no
callback runs in the thread of a caller. It speaks RESP3, in which the events of watches come on the
connection of the requests, in order with the replies.
"""

from __future__ import annotations

import secrets
import select
import socket
import ssl
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import hiredis
from redis.exceptions import RedisError

from distlock.engine.calls import Latch, start_thread, this_thread
from distlock.engine.deadline import SessionDeadline, now
from distlock.engine.guard import guarded, report_once
from distlock.engine.kazoo import ConnectionDropped, ConnectionLoss
from distlock.engine.reply import Reply
from distlock.engine.serving import MANY, SHORTEST_PAUSE, WOULD_BLOCK, Serving, Submitting
from distlock.engine.wire import Wire
from distlock.exceptions import LockUnavailable
from distlock.logs.loggers import Outage

from .address import address, check_files, where
from .errors import (
    REFUSALS,
    NotConfirmed,
    RedisRefused,
    TooFewReplicas,
    bare,
    error_of,
    refusal,
)
from .library import CODE, digest, mark
from .requests import (
    LIST,
    Asked,
    Request,
    Requests,
    also_told,
    beginning,
    call,
    good_bye,
    joined,
    packed,
    prefix,
    session_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import Configuration

#: The watch events, by the first letter of their message.
_DELETED: Final = "D"
_CHANGED: Final = "C"
#: The message by which the server asks for a ping.
_PING: Final = "P"
#: The shortest time between two pings, in seconds.
_LEAST_PING_SECONDS: Final = 0.005
#: The words of a server that is no longer the one for these locks.
_ELSEWHERE: Final = ("READONLY", "MASTERDOWN", "MOVED", "NOAUTH")
#: The reader returns it while an answer is not complete.
_MORE: Final = object()
#: Where there is no answer of the script yet.
_NONE: Final = object()


class RedisClient(Serving, Submitting, Requests):
    """One connection that keeps itself up, and its session of the moment.

    Its requests are calls of a script. Where replicas must confirm one, a ``WAIT`` goes along, and
    two answers come. `EngineClient` tells of its methods.

    :raises ImproperlyConfigured: a file of TLS that the URL names cannot be read
    """

    tells_the_rest = True
    # A connection whose ping gets no answer until the next one is given up with a sixth of the
    # session timeout left before the deadline: an acquire renews nothing that would move that.
    pings = 4

    def __init__(self, conf: Configuration, changed: Callable[[bool, int], None]) -> None:
        check_files(conf)
        self.client = self._connection = self  # with kazoo they are two
        self._conf = conf
        self._where = where(conf)
        self._changed = changed
        self.steps = deque()
        self.deadline = SessionDeadline()
        self.stopped = False
        #: Opened when it stops, for the pause between two tries.
        self._ending = Latch()
        self.outage = Outage(self._where)
        self.session_timeout = self.negotiated_timeout = conf.session_timeout
        #: The seconds that a server may take for each step of a connection.
        self._patience = max(conf.connect_timeout / 2, 0.2)
        #: Waits until the replicas confirm a write; so long that a ping behind one is not given up.
        milliseconds = int(min(conf.session_timeout / 10, 1.0) * 1000)
        self._wait = packed(b"WAIT", b"%d" % conf.replicas, b"%d" % milliseconds)
        self._reported: set[tuple[Any, ...]] = set()
        self._socket: Any = None
        self._live = False
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        self._queue = deque()
        #: Requests that the server has not answered yet, in their order: with it, where the outcome
        #: goes, and how many answers it has.
        self._pending: deque[Any] = deque()
        #: The answer of the script whose ``WAIT`` is not answered yet.
        self._unconfirmed: Any = _NONE
        #: Events that have come since that answer: their watches are set when it is settled.
        self._events: deque[str] = deque()
        self._data_watchers, self._child_watchers = {}, {}
        #: While a message of the server is reported: what it tells beside, by what one would ask.
        self._told: dict[Asked, Any] = {}
        #: Requests that it answers, and what it answers.
        self._answered: deque[tuple[Any, Reply, Any]] = deque()
        #: When the ping was sent that is not answered yet (`time.monotonic`).
        self._pinged_at: float | None = None
        self.session_id = 0
        self.password = b""
        #: The first arguments of each call over this connection.
        self._session_arguments: tuple[bytes, ...] = ()
        #: The number of this connection, which rises.
        self._number = 0
        #: When the last request was sent that has renewed the session (`deadline.now`). A create
        #: renews nothing on the server.
        self.renewed_at = 0.0
        #: The number of the session's last transaction.
        self._last = 0
        self._read_sock, self._write_sock = socket.socketpair()
        self._read_sock.setblocking(False)
        self._write_sock.setblocking(False)
        self.routine = threading.Thread(
            target=self._run, name=f"distlock-{conf.alias}", daemon=True
        )

    # --- connecting ------------------------------------------------------------------------------

    def _run(self) -> None:
        self.thread = threading.get_ident()
        this_thread.ours = True
        try:
            while not self.stopped:
                if not self._attempt():
                    self.pause(self._ending.wait)
        finally:
            self.stopped = True
            self.wire = None
            self.fail_queued()
            guarded(self._changed, False, 0)
            self.close()

    def close(self) -> None:
        """Close the sockets that wake the thread, once it has ended or could not be started."""
        waking, self._write_sock = self._write_sock, None
        if waking is not None:
            waking.close()
        self._read_sock.close()

    def _attempt(self) -> bool:
        """Connect and serve until the connection ends; return whether there was one."""
        connected = False
        try:
            self._connect()
            connected = self._live = True
            self.next_pause = SHORTEST_PAUSE
            self.outage.end()
            self.fail_queued()
            guarded(self._changed, True, self.session_id)
            self.serve(self._patience)
        except BaseException as error:  # noqa: BLE001 - the session would end with the thread
            self._note(error)
        self.disconnected()
        gone, self._socket, self.wire = self._socket, None, None
        if gone is not None:
            gone.close()
        return connected

    def _note(self, error: BaseException) -> None:
        """Keep the reason of a failure for messages; log one that nobody has foreseen."""
        self.failure = error
        self.trouble = error if isinstance(error, RedisRefused) else refusal(error, self._where)
        usual = RedisRefused | RedisError | OSError | ConnectionDropped | hiredis.ProtocolError
        if not isinstance(error, usual):
            report_once(error, self._reported)

    def _connect(self) -> None:
        """Connect, and begin a session, or carry one on."""
        self.fail_queued()
        if self.cut_off:
            raise ConnectionRefusedError("a test has cut the connection")
        greeted = address(self._conf.hosts).connect(self._patience)
        taken: Any
        taken, greeted._sock = greeted._sock, None  # its parser reads no further
        taken.setblocking(False)
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        self._unconfirmed = _NONE
        self._events.clear()
        self._socket = taken
        # OpenSSL allows no two threads in one connection, one that sends and one that reads.
        if not isinstance(taken, ssl.SSLSocket):
            self._socket = Wire(taken, self.packed)
        self._check()
        self._begin()
        self._busy_since = self._pinged_at = None
        self.failure = self.trouble = self.given_up = None
        if isinstance(self._socket, Wire):
            self._pending = self._socket.unanswered
            self.wire = self._socket

    def _check(self) -> None:
        """Refuse a server that is too old, or a replica."""
        facts = self._ask(b"HELLO", b"3")
        if tuple(map(int, facts[b"version"].split(b".")[:2])) < (6, 2):
            raise error_of("ERR unknown command `HELLO`", self._where)
        if facts[b"role"] not in (b"master", b"primary"):
            raise error_of("READONLY", self._where)

    def _begin(self) -> None:
        """Carry on the session if it lives, and begin another one if not."""
        marked = mark(prefix(self._conf))
        new = not self._has(marked)
        if not self.session_id or not self._subscribe_and_call(
            beginning(self._conf, self._last, new=new)
        ):
            if self.session_id:
                guarded(self._changed, False, 0)
            self.session_id = secrets.randbits(62) | 1 << 61
            self.password = secrets.token_hex(16).encode()
            self._last = 0
            self._subscribe_and_call(beginning(self._conf, None, new=new))
        if new:
            self._ask(b"SCRIPT", b"LOAD", marked)

    def _has(self, script: bytes) -> bool:
        """Return whether the server has a script."""
        try:
            self._ask(b"EVALSHA", digest(script), b"0")
        except RedisRefused as error:
            if "NOSCRIPT" in str(error):
                return False
            raise
        return True

    def _subscribe_and_call(self, request: Request) -> bool:
        """Return whether the session lives."""
        self._ask(b"SUBSCRIBE", self._channel)
        self._number += 1
        self._session_arguments = session_arguments(
            self._conf, self.session_id, self.password, self._number
        )
        sent_at = now()
        try:
            self._ask(*call(self._session_arguments, request))
        except RedisRefused as error:
            if "SESSIONOVER" in str(error):
                self._ask(b"UNSUBSCRIBE", self._channel)
                return False
            if "NOSCRIPT" not in str(error):
                raise
            self._ask(b"SCRIPT", b"LOAD", CODE)
            return self._subscribe_and_call(request)
        self.renewed_at = sent_at
        return True

    @property
    def _channel(self) -> bytes:
        return prefix(self._conf) + b"events:%d" % self.session_id

    def _ask(self, *command: bytes) -> Any:
        """Send a command and return its answer, before the connection serves requests."""
        deadline = time.monotonic() + self._patience
        self._finish(packed(*command), self._patience)
        while True:
            answer: Any = self._reader.gets()
            if answer is _MORE:
                self._await(select.POLLIN, deadline - time.monotonic())
                self._reader.feed(self._chunk())
            elif isinstance(answer, hiredis.ReplyError):
                raise error_of(str(answer), self._where)
            elif not isinstance(answer, hiredis.PushNotification) or answer[0] != b"message":
                return answer

    def _await(self, event: int, seconds: float) -> None:
        ready = select.poll()
        ready.register(self._socket, event)
        pending = event == select.POLLIN and getattr(self._socket, "pending", int)()
        if not pending and not ready.poll(max(seconds, 0) * 1000):
            raise ConnectionDropped("The server does not answer.")

    # --- serving ---------------------------------------------------------------------------------

    def packed(self, request: Any) -> tuple[int, bytes]:
        """Return how many answers a request has, and the request as bytes."""
        message = packed(*call(self._session_arguments, request))
        if not (request.counts and self._conf.replicas):
            return 1, message
        return 2, message + self._wait

    def _chunk(self) -> bytes:
        try:
            chunk: bytes = self._socket.recv(MANY)
        except WOULD_BLOCK:
            return b""
        if not chunk:
            raise ConnectionDropped("The server has closed the connection.")
        return chunk

    def _receive(self) -> None:
        chunk = self._chunk()
        if not chunk:
            return
        self._reader.feed(chunk)
        while (answer := self._reader.gets()) is not _MORE and not self.closed_session:
            if not isinstance(answer, hiredis.PushNotification):
                self._answer(answer)
            elif answer[0] == b"message":
                self._events.append(answer[2].decode())
            while self._events and self._unconfirmed is _NONE:
                guarded(self.fire, self._events.popleft())

    def _answer(self, answer: Any) -> None:
        """Settle the oldest request, once all of its answers are there."""
        pending = self._pending
        if not pending:
            raise ConnectionDropped("The server sent an answer to nothing.")
        request, reply, answers = pending[0]
        if isinstance(answer, hiredis.ReplyError):
            self._heed(str(answer))
        if answers == 2 and self._unconfirmed is _NONE:
            self._unconfirmed = answer
            return
        confirmed = None
        if answers == 2:
            answer, confirmed, self._unconfirmed = self._unconfirmed, answer, _NONE
        pending.popleft()
        if reply is None:  # to the request that ends the session
            self.closed_session = True
            return
        self._settle(request, reply, answer, confirmed)

    def _heed(self, refusal: str) -> None:
        """End the connection where the next one will do better.

        :raises ConnectionDropped: the session is over, or the script has to be loaded again
        :raises RedisRefused: the server is not the primary any more, which a managed service says
            by nothing but its name, or it has forgotten who asks
        """
        refusal = bare(refusal)
        if refusal.startswith(_ELSEWHERE):
            raise error_of(refusal, self._where)
        if refusal.startswith("SESSIONOVER"):
            raise ConnectionDropped("The session is over.")
        if refusal.startswith("NOSCRIPT"):
            raise ConnectionDropped("The server has lost the script.")

    def _settle(self, request: Any, reply: Reply, answer: Any, confirmed: Any) -> None:
        value: Any = None
        error: BaseException | None = None
        if isinstance(answer, hiredis.ReplyError):
            error = self._error(str(answer))
        else:
            try:
                value = request.read(answer)
            except Exception as refusal:  # noqa: BLE001 - goes to the caller
                error = refusal
            if request.changes and answer[0] < 0 and answer[1]:
                self._last = int(answer[1])
        if error is None and confirmed is not None:
            error = self._unconfirmed_error(request, confirmed)
        if error is None and request.watcher is not None:
            self.watch(request)
        if error is None and type(value) is int:
            self._plan(value / 1000)
        told = {} if error else also_told(request, answer)
        self.deliver(told, reply.settle, None if error else value, error)
        if isinstance(error, TooFewReplicas):
            reply.settle(value, None)  # to its orphan, which deletes the node

    def _error(self, text: str) -> BaseException:
        known = REFUSALS.get(text.encode().split()[0])
        return known() if known is not None else error_of(text, self._where)

    def _unconfirmed_error(self, request: Any, confirmed: Any) -> BaseException | None:
        count = confirmed if isinstance(confirmed, int) else 0
        if count >= self._conf.replicas:
            return None
        message = (
            f"{self._where}: {count} of the {self._conf.replicas} replicas that REPLICAS asks for "
            "confirmed the lock in time. Look at `INFO replication` there."
        )
        return TooFewReplicas(message) if request.creates else NotConfirmed(message)

    def _plan(self, seconds: float) -> None:
        """Ask again when the next session of all may have ended, if anybody waits for that.

        Or soon, if there is more to clear away than one ping does.
        """
        if self._data_watchers or self._child_watchers or not seconds:
            at = time.monotonic() + max(seconds, _LEAST_PING_SECONDS)
            self._ping_at = min(self._ping_at, at)

    def _ping(self, timeout: float) -> None:
        now = time.monotonic()
        if self._pinged_at is None:
            self._pinged_at = now
            self.ping()
        elif now - self._pinged_at > self.negotiated_timeout / 5:
            raise ConnectionDropped("The server does not answer.")

    def _finish(self, message: bytes, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while message:
            try:
                message = message[self._socket.send(message) :]
            except WOULD_BLOCK:
                self._await(select.POLLOUT, deadline - time.monotonic())
            except OSError as error:
                raise ConnectionDropped(f"A request could not be sent: {error}.") from error

    # --- what a session uses ---------------------------------------------------------------------

    def connect(self) -> None:
        try:
            start_thread(self.routine)
        except LockUnavailable:
            self.close()
            raise

    @property
    def credentials(self) -> tuple[int, bytes]:
        return self.session_id, self.password

    def explain(self, error: BaseException | None) -> str:
        if isinstance(error, RedisRefused):
            return str(error)
        if error is None:
            tls = ", with TLS on that port" if self._conf.hosts.startswith("rediss") else ""
            return f"{self._where} did not answer in time. Is it running, and reachable{tls}?"
        return f"{self._where} could not serve the request: {error!r}."

    def say_goodbye(self, seconds: float) -> bool:
        self.stopped = True
        self._ending.open()
        self._queue.append((good_bye(), None))
        with suppress(OSError):  # it has ended already
            self.wake()
        if self.routine.ident is not None and self.routine is not threading.current_thread():
            self.routine.join(seconds)
        return self.closed_session

    # --- on the connection thread ----------------------------------------------------------------

    def disconnected(self) -> None:
        """Report that there is no connection, and that what was asked gets no answer."""
        if not self.stopped:
            self.outage.note(self.reason)
        if not self._live:
            return
        self._live = False
        guarded(self._changed, False, self.session_id)
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.close()
        while self._pending:
            _, reply, _ = self._pending.popleft()
            if reply is not None:
                reply.set_exception(ConnectionLoss())
        self.fail_queued()
        watchers = [*self._data_watchers.values(), *self._child_watchers.values()]
        self._data_watchers, self._child_watchers = {}, {}
        for changed in [one for some in watchers for one in some]:
            guarded(changed, False)

    def fail_queued(self) -> None:
        """Fail what was queued in the instant of a loss, but leave the good-bye."""
        for _ in range(len(self._queue)):
            request, reply = self._queue.popleft()
            if reply is None:
                self._queue.append((request, reply))
            else:
                reply.set_exception(ConnectionLoss())

    def watch(self, request: Any) -> None:
        """Keep the callback of a watch that the server has set."""
        watchers = self._child_watchers if request.children else self._data_watchers
        watchers.setdefault(request.path, set()).add(request.watcher)

    def fire(self, event: str) -> None:
        """Call the watchers of an event."""
        kind = event[0]
        if kind == _PING:
            self.ping()
            return
        path, told, names = event[1:].partition("\0")
        watchers: list[Callable[[bool], None]] = []
        if kind in (_DELETED, _CHANGED):
            watchers += self._data_watchers.pop(path, ())
        if kind != _CHANGED:
            watchers += self._child_watchers.pop(path, ())
        left = {(LIST, path.rpartition("/")[0]): names.split("/") if names else []} if told else {}
        self.deliver(left, self._call, watchers, kind == _DELETED)

    def _call(self, watchers: list[Callable[[bool], None]], deleted: bool) -> None:
        for changed in watchers:
            guarded(changed, deleted)

    def deliver(self, told: dict[Asked, Any], report: Callable[..., None], *about: Any) -> None:
        """Report a message of the server; what it tells beside answers what its callbacks ask.

        The server would have answered so before anything that it sends later.
        """
        self._told = told
        report(*about)
        self._told = {}
        while self._answered:
            request, reply, value = self._answered.popleft()
            if request.watcher is not None:
                self.watch(request)
            reply.settle(value, None)

    def submit(self, *calls: tuple[Any, Reply], first: bool = False) -> None:
        if len(calls) == 2:
            super().submit(*joined(*calls), first=first)
        elif not (self._told and self._told_already(*calls[0])):
            super().submit(*calls, first=first)

    def _told_already(self, request: Any, reply: Reply) -> bool:
        """Answer a request by what the message tells that is being reported, if it does."""
        value = self._told.get((request.function, request.path))
        if value is None or self._pending or self._queue or self.thread != threading.get_ident():
            return False
        self._answered.append((request, reply, value))
        return True

    def ping(self) -> None:
        """Renew the session."""
        sent_at = now()

        def answered(_: Any, error: BaseException | None) -> None:
            self._pinged_at = None
            if error is None:
                self.renewed_at = sent_at

        reply = Reply(answered, None, lambda _: None, self.session_id)
        self._queue.append((self.proof("", by_write=True), reply))
