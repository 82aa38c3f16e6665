"""A client whose server is Redis; see `distlock.engine.protocol.EngineClient`.

As there, everything happens on the connection thread, which connects, serves, and connects again:
requests are answered in order, watches fire between the answers where the changes were, and no
callback runs in the thread of a caller. It speaks RESP3, in which the events of watches come on the
connection of the requests, in order with the replies.
"""

from __future__ import annotations

import re
import secrets
import select
import ssl
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import hiredis
from redis.exceptions import RedisError
from redis.sentinel import MasterNotFoundError

from distlock.engine.deadline import now
from distlock.engine.errors import REFUSALS
from distlock.engine.guard import guarded
from distlock.engine.kazoo import ConnectionDropped
from distlock.engine.own_client import OwnClient
from distlock.engine.reply import Reply
from distlock.engine.serving import MANY, WOULD_BLOCK, no_answer
from distlock.engine.wire import Wire

from .address import address, check_files, where
from .errors import (
    NotConfirmed,
    RedisRefused,
    TooFewReplicas,
    bare,
    error_of,
    refusal,
)
from .library import CODE, digest, mark
from .requests import (
    Request,
    Requests,
    also_told,
    beginning,
    call,
    good_bye,
    joining,
    packed,
    prefix,
    session_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.protocol import Configuration

#: The words of a server that is no longer the one for these locks.
_ELSEWHERE: Final = ("READONLY", "MASTERDOWN", "MOVED", "NOAUTH")
#: The reader returns it while an answer is not complete.
_MORE: Final = object()
#: Where there is no answer of the script yet.
_NONE: Final = object()


class RedisClient(OwnClient, Requests):
    """One connection that keeps itself up, and its session of the moment.

    Its requests are calls of a script. Where replicas must confirm one, a ``WAIT`` goes along, and
    two answers come. `EngineClient` tells of its methods.

    :raises ImproperlyConfigured: a file of TLS that the URL names cannot be read
    """

    usual = (RedisRefused, RedisError, hiredis.ProtocolError)
    joining = staticmethod(joining)
    _good_bye = staticmethod(good_bye)

    def __init__(self, conf: Configuration, changed: Callable[[bool, int], None]) -> None:
        check_files(conf)
        super().__init__(conf, changed, where(conf))
        #: Waits until the replicas confirm a write; so long that a ping behind one is not given up.
        milliseconds = int(min(conf.session_timeout / 10, 1.0) * 1000)
        self._wait = packed(b"WAIT", b"%d" % conf.replicas, b"%d" % milliseconds)
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        #: The answer of the script whose ``WAIT`` is not answered yet.
        self._unconfirmed: Any = _NONE
        #: Events that have come since that answer: their watches are set when it is settled.
        self._events: deque[str] = deque()
        #: The first arguments of each call over this connection.
        self._session_arguments: tuple[bytes, ...] = ()
        #: The number of the session's last transaction.
        self._last = 0

    # --- connecting ------------------------------------------------------------------------------

    def _refused(self, error: BaseException) -> BaseException | None:
        return error if isinstance(error, RedisRefused) else refusal(error, self._where)

    def _note(self, error: BaseException) -> None:
        super()._note(error)
        if isinstance(error, MasterNotFoundError):
            self.failure = ConnectionError("none of the Sentinels answers")

    def _connect(self) -> None:
        """Connect, and begin a session, or carry one on."""
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
                guarded(self._fire, self._events.popleft())

    def _fire(self, event: str) -> None:
        path, told, names = event[1:].partition("\0")
        self.fire(event[0], path, (names.split("/") if names else []) if told else None)

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
        known = REFUSALS.get(text.split(maxsplit=1)[0])
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

    def explain(self, error: BaseException | None, away: str = "") -> str:
        if isinstance(error, RedisRefused):
            return str(error)
        if error is None:
            tls = ", with TLS on that port" if self._conf.hosts.startswith("rediss") else ""
            text = f"{no_answer(self._where, away)} Is it running, and reachable{tls}?"
            if re.search(r":2181\b", self._where):
                text += ' Port 2181 is that of ZooKeeper: "host:2181", without redis://.'
            return text
        return f"{self._where} could not serve the request: {error!r}."

    def _renew(self, reply: Reply) -> None:
        self._queue.append((self.proof("", by_write=True), reply))
