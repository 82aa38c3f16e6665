"""Serves one connection: sends what is queued, takes what comes, and sleeps in between.

Everything happens on the connection thread, but for `Serving.wake`. The connections of the engines
differ in what they send and read, and in how they connect.
"""

from __future__ import annotations

import importlib
import random
import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from distlock.engine.kazoo import ConnectionDropped

from .guard import report_once, take_all

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from .reply import Reply
    from .wire import Wire

# The first getaddrinfo() imports this codec. On the connection thread that would leave the import
# lock taken in a child forked meanwhile, which could then never connect.
importlib.import_module("encodings.idna")

#: The first pause between two tries to connect, in seconds.
SHORTEST_PAUSE: Final = 0.05
#: How much is read, or sent, in one go, in bytes.
MANY: Final = 65536
#: How often the connection thread looks whether another thread still sends, and how long one send
#: may take. A longer one has been interrupted, and the connection is dropped.
_LOOK_SECONDS: Final = 0.005
_SEND_SECONDS: Final = 0.25
WOULD_BLOCK: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


def no_answer(where: str, away: str) -> str:
    """Return what is wrong with a server, given the reason why there is no connection, if none."""
    if away:
        return f"There is no connection to {where}: {away}."
    return f"{where} did not answer in time."


class Serving:
    """The loop of a connection; a subclass connects, and knows the protocol."""

    #: It has the queue of requests.
    client: Any
    #: In seconds.
    negotiated_timeout: float
    _socket: Any
    # A pair by which other threads wake the connection's.
    _read_sock: socket.socket
    _write_sock: socket.socket | None

    #: How often the server is asked whether it is there, in a session timeout.
    pings = 3
    #: Whether the server has acknowledged the end of the session.
    closed_session = False
    #: Where any thread may send; None while there is no connection, and with TLS.
    wire: Wire | None = None
    #: The connection thread.
    thread = 0
    #: Whether that sleeps, or is about to.
    asleep = False
    #: When the wire was found busy (`time.monotonic`), None if it was free at the last look.
    _busy_since: float | None = None
    #: When the server is asked next whether it is there (`time.monotonic`).
    _ping_at = 0.0
    #: The next pause between two tries to connect, and the longest, in seconds.
    next_pause = SHORTEST_PAUSE
    longest_pause = 0.75
    #: The errors that were reported.
    _reported: set[tuple[Any, ...]]
    #: Why the last connection ended, or could not be made.
    failure: BaseException | None = None
    #: Why trying again will not help.
    trouble: BaseException | None = None
    #: The socket that was closed on this side because the server gave no answer.
    given_up: Any = None

    # --- what a subclass has ---------------------------------------------------------------------

    #: Returns a new number for a request, and the request as bytes.
    packed: Callable[[Any], tuple[int, bytes]]
    #: Takes what has come, and acts on each reply and each watch event in it.
    _receive: Callable[[], None]
    #: Asks whether the server is there, `pings` times in a session timeout. It raises
    #: ConnectionDropped if that has not answered what it was asked before.
    _ping: Callable[[float], None]
    #: Sends the end of a message, of which the kernel has taken the beginning; may block.
    _finish: Callable[[bytes, float], None]

    @property
    def reason(self) -> str:
        """Why there is no connection, in a few words."""
        if self.given_up is not None and self.given_up is self._socket:
            return "no answer in time"
        error = self.trouble or self.failure
        cause = error and error.__context__
        if isinstance(cause, OSError) and not isinstance(error, OSError):
            error = cause  # kazoo's own text may be "None", and redis-py's names the server again
        if error is None:
            return "it was closed"
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return text.partition("\n")[0].rstrip(".")

    # --- connecting ------------------------------------------------------------------------------

    def pause(self, wait: Callable[[float], object]) -> None:
        """Pause between two tries to connect, longer each time.

        An error in it must not end the thread, and with it the session.
        """
        try:
            wait(self.next_pause * random.uniform(0.7, 1.3))  # noqa: S311 - jitter
        except BaseException as error:  # noqa: BLE001 - see above
            report_once(error, self._reported)
            with suppress(BaseException):  # or else the next try would come at once, each time
                time.sleep(self.next_pause)
        self.next_pause = min(self.next_pause * 2, self.longest_pause)

    # --- serving ---------------------------------------------------------------------------------

    def serve(self, read_timeout: float) -> None:
        """Serve the connection until its session is closed.

        Send all that is queued in one go, take all replies that are there, and sleep where nothing
        is to be done.

        :raises ConnectionDropped: the connection has ended
        """
        client, wire, waking = self.client, self.wire, self._read_sock
        inputs = select.poll()
        inputs.register(self._socket, select.POLLIN)
        inputs.register(waking, select.POLLIN)
        interval = self.negotiated_timeout / self.pings
        self._ping_at = time.monotonic() + interval
        while not self.closed_session:
            self.asleep = True  # before it looks for work: see `wake`
            rest = wire.rest if wire is not None else self._socket.pending()
            work = client.steps or client._queue or rest
            patience = self._send_queued(read_timeout) if work else 0.0
            more = work and (client.steps or client._queue or wire is None or wire.rest)
            if not (patience or more):
                patience = min(max(self._ping_at - time.monotonic(), 0.0), interval)
            ready = dict(inputs.poll(patience * 1000))
            self.asleep = False
            if ready.pop(waking.fileno(), None):
                waking.recv(MANY)
            if client.steps:  # what was posted before a request comes before the reply to that
                take_all(client.steps)
            if ready or wire is None:  # what TLS has decrypted does not show on the socket
                self._receive()
            if time.monotonic() >= self._ping_at:
                self._ping_at = time.monotonic() + interval
                self._ping(read_timeout)

    def wake(self) -> None:
        """Wake the connection thread, after something was queued for it; from any thread.

        It looks for work after it has said that it sleeps. So a thread that is interrupted between
        queueing a request and waking it leaves a request that the next wake-up sends, and no state.
        """
        waking = self._write_sock
        if waking is None:
            raise ConnectionError("The connection has been closed.")
        if self.asleep:
            try:  # noqa: SIM105 - suppress() makes three calls
                waking.send(b"\0")
            except BlockingIOError:  # full, and so awake
                pass

    # --- sending ---------------------------------------------------------------------------------

    def _send_queued(self, timeout: float) -> float:
        """Do and send what is queued; return for how many seconds another thread may keep it."""
        if self.client.steps:
            take_all(self.client.steps)
        queue, wire = self.client._queue, self.wire
        if wire is None:
            self._send_all(queue, timeout)
        elif queue or wire.rest:
            if not self._reserve(wire):
                return self._time_to_next_look(wire)
            try:
                message, wire.rest = wire.rest, b""
                if message:
                    self._write(message, timeout)
                self._send_all(queue, timeout)
                wire.sent_at = time.monotonic()
            finally:
                wire.lock.release()
            self._busy_since = None
        return 0.0

    def _reserve(self, wire: Wire) -> bool:
        """Keep other threads from sending; return False while one does."""
        if not wire.lock.acquire(blocking=False):
            return False
        if wire.unfinished:
            wire.lock.release()
            raise ConnectionDropped("A send was interrupted.")
        return True

    def _time_to_next_look(self, wire: Wire) -> float:
        """Return how long another thread may go on sending, in seconds.

        A signal handler may run in the middle of a send, and wait for an answer itself.
        """
        now = time.monotonic()
        if self._busy_since is None:
            self._busy_since = now
        if now - max(self._busy_since, wire.sent_at) >= _SEND_SECONDS:
            raise ConnectionDropped("A send was interrupted.")
        return _LOOK_SECONDS

    def _send_all(self, queue: deque[tuple[Any, Reply | None]], timeout: float) -> None:
        parts: list[bytes] = []
        length = 0
        while queue and length < MANY:
            request, reply = queue.popleft()
            try:
                xid, message = self.packed(request)
            except Exception as error:  # noqa: BLE001 - in kazoo it would end the thread
                if reply is not None:
                    reply.set_exception(error)
                continue
            parts.append(message)
            length += len(message)
            self.client._pending.append((request, reply, xid))
        if parts:
            self._write(b"".join(parts), timeout)

    def _write(self, message: bytes, timeout: float) -> None:
        try:
            message = message[self._socket.send(message) :]
        except WOULD_BLOCK:
            pass
        except OSError as error:
            raise ConnectionDropped(f"A request could not be sent: {error}.") from error
        if message:
            self._finish(message, timeout)


class Submitting:
    """How a client passes on requests, from any thread, to the wire or to the connection thread.

    `protocol.EngineClient` tells of its methods.
    """

    #: Whether it stays without a connection.
    cut_off = False
    #: The connection thread calls these.
    steps: deque[Callable[[], None]]
    _connection: Any
    #: Requests for the connection thread to send.
    _queue: deque[tuple[Any, Reply | None]]
    #: The callbacks of watches, by path: of a node, and of the names of its children.
    _data_watchers: dict[str, set[Any]]
    _child_watchers: dict[str, set[Any]]

    @property
    def reason(self) -> str:
        """Why there is no connection, in a few words."""
        reason: str = self._connection.reason
        return reason

    @property
    def server(self) -> str:
        """Host and port of the connected server, or its Unix socket; empty without a connection."""
        connected = self._connection._socket
        try:
            peer = connected.getpeername()
        except (AttributeError, OSError):  # there is none, or it has just been closed
            return ""
        if isinstance(peer, str):
            return peer
        host, port = peer[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def submit(self, *calls: tuple[Any, Reply], first: bool = False) -> None:
        """Send requests in one go from the calling thread, or let the connection thread do it.

        The latter sends what it submits itself, for it sends all that a reply leads to in one go;
        what comes after something that is queued; what is submitted while another thread sends; and
        everything with TLS.
        """
        connection, queue = self._connection, self._queue
        wire = connection.wire
        if (
            wire is None
            or queue
            or connection.thread == threading.get_ident()
            or not wire.transmit(*calls)
        ):
            if connection.wire is not wire and wire is not None:
                # Meanwhile a signal handler has replaced the connection.
                self.submit(*calls, first=first)
            else:
                self._queue_up(queue.extendleft if first else queue.extend, calls)
        elif queue or wire.rest:  # of a thread that found the wire busy, or of a full one
            connection.wake()

    def soon(self, step: Callable[[], None]) -> None:
        self._queue_up(self.steps.append, step)

    def _queue_up(self, queue: Callable[[Any], None], what: Any) -> None:
        """Queue something for the connection thread, and wake that.

        kazoo's own ``_call`` catches every exception while it wakes the thread, a soft time limit
        or Ctrl-C too.
        """
        try:
            queue(what)
            self._connection.wake()
        except BaseException:  # it may have landed between the two
            self._connection.wake()
            raise

    def forget_watchers(self, path: str, *, children: bool = False) -> None:
        (self._child_watchers if children else self._data_watchers).pop(path, None)

    def drop(self) -> None:
        connected = self._connection._socket
        if connected is not None:
            self._connection.given_up = connected
            with suppress(OSError):
                # An SSLSocket's own would make it a plain one, in which others may be sending.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)
