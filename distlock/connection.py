"""kazoo's connection and its threads: one thread a connection, and few system calls.

- *Everything happens on the connection thread.* Requests are completed by callbacks that it runs at
  once and in the order of the server's answers, and so are watches. Callbacks never block, so there
  are no worker threads, no locks around the line of waiters, and no hop between an answer and its
  consequence.
- *One unreachable server does not use up the time of the others.*
- *The negotiated session timeout is kept*; kazoo only logs it.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kazoo.exceptions import EXCEPTIONS, APIError, AuthFailedError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.serialization import Connect

logger = logging.getLogger("distlock")

_LENGTH: Final = struct.Struct("!i")
_PREFIX: Final = struct.Struct("!ii")
#: How much is read, or sent, in one go, in bytes.
_MANY: Final = 65536
_WOULD_BLOCK: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


def guarded(step: Callable[..., None], *args: Any) -> None:
    """Run a step on the connection thread, which no mistake of ours may end."""
    try:
        step(*args)
    except Exception:
        logger.exception("A step of the waiting line failed: this is a bug in distlock.")


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads without its two worker threads: callbacks run on the connection thread."""

    def __init__(self, name: str, connect_timeout: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._name = name
        self._connect_timeout = connect_timeout
        self._tls = tls
        #: The server's name, for its certificate. kazoo tells it only since 2.11.
        self.hostname = ""

    def start(self) -> None:
        """Start nothing: `_running` stays false, which makes kazoo run completions in place."""

    def stop(self) -> None:
        """Stop nothing."""

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        # A burst of requests fills it. A blocked connection thread would wait for itself, for ever.
        reading, waking = super().create_socket_pair()
        waking.setblocking(False)
        return reading, waking

    def dispatch_callback(self, callback: Any) -> None:
        guarded(callback.func, *callback.args)

    def create_connection(self, address: Any, timeout: float, **options: Any) -> socket.socket:
        # kazoo would give one dead server the whole session timeout.
        connected = self._create_connection(address, min(timeout, self._connect_timeout))
        connected.setblocking(False)  # a socket with a timeout asks poll() before each recv()
        return connected

    def _create_connection(self, address: Any, timeout: float) -> socket.socket:
        if self._tls is None:
            connected: socket.socket = super().create_connection(address, timeout=timeout)
            return connected
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._tls.wrap_socket(plain, server_hostname=self.hostname)
        finally:
            plain.close()  # it has been detached where all went well

    def select(
        self, readers: Any, writers: Any, errors: Any, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # What has been decrypted already does not show on the socket, and kazoo's loop forgets it.
        ready = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        if ready:
            return ready, [], []
        # kazoo's makes an epoll object each time, which is half of what a request costs here.
        # Unlike select(), poll() knows no greatest file descriptor.
        waiting = select.poll()
        for one in writers:
            waiting.register(one, select.POLLOUT)
        for one in readers:  # nothing of kazoo's waits for both
            waiting.register(one, select.POLLIN)
        happened = dict(waiting.poll(None if timeout is None else timeout * 1000))
        return (
            [one for one in readers if one.fileno() in happened],
            [one for one in writers if one.fileno() in happened],
            [],
        )

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
        thread = threading.Thread(
            target=func, args=args, kwargs=kwargs, name=self._name, daemon=True
        )
        thread.start()
        return thread


class Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which keeps the negotiated timeout and ends without a traceback."""

    negotiated_timeout = 0.0
    connect_timeout = 1.0
    ended = False
    #: When the last connection was lost.
    lost_at = 0.0
    #: Why the last try to connect failed, where trying again will not help. kazoo forgets it.
    trouble: ssl.SSLError | AuthFailedError | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._xid = 0
        self._awake = False
        #: The connection thread while it completes requests: what these lead to, it sends unasked.
        self._completing = 0
        #: What the server has sent and nobody has looked at.
        self._unread = bytearray()

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        except InterruptedError:
            logger.debug("The connection was closed while it waited to reconnect.")
        finally:
            self.ended = True
            self.close()

    # --- many at a time --------------------------------------------------------------------------
    #
    # kazoo goes through its loop once for each request and each reply, with two to five system
    # calls each. Here it sends all that is queued in one go, takes all replies that are there, and
    # asks poll() only where it would have to wait.

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        # In this order, and before the look at the queue, no wake-up is missed.
        self._read_sock.recv(_MANY)
        self._awake = False
        self._send_queued(connect_timeout)

    def _send_queued(self, timeout: float) -> None:
        steps, queue = self.client.steps, self.client._queue
        while steps:
            guarded(steps.popleft())
        message = bytearray()
        while queue and len(message) < _MANY:
            request, reply = queue.popleft()
            xid = self._xid % 0x7FFFFFFF + 1
            try:
                content = _PREFIX.pack(xid, request.type) + request.serialize()
            except Exception as error:  # noqa: BLE001 - in kazoo it would end the thread
                reply.set_exception(error)
                continue
            self._xid = xid
            message += _LENGTH.pack(len(content)) + content
            self.client._pending.append((request, reply, xid))
        if message:
            self._write(message, timeout)
        if queue:
            self.wake()

    def _write(self, message: bytes | bytearray, timeout: float) -> None:
        with self._socket_error_handling(), suppress(*_WOULD_BLOCK):
            message = message[self._socket.send(message) :]
        if message:
            super()._write(message, timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        self._completing = threading.get_ident()
        try:
            outcome = super()._read_socket(read_timeout)
            while outcome is None and self._has_a_reply():
                outcome = super()._read_socket(read_timeout)
            if outcome is None:
                self._send_queued(read_timeout)
            return outcome
        finally:
            self._completing = 0
            if self.client.steps or self.client._queue:
                self.wake()

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        # An error that kazoo does not know would end its thread: before 2.11 NoWatcher is one.
        if header.err and header.err not in EXCEPTIONS:
            header = header._replace(err=APIError.code)
        return super()._read_response(header, buffer, offset)

    def _has_a_reply(self) -> bool:
        """Whether a whole one has been read."""
        read = self._unread
        return (
            len(read) >= _LENGTH.size and len(read) - _LENGTH.size >= _LENGTH.unpack_from(read)[0]
        )

    def _read(self, length: int, timeout: float) -> bytes:
        unread = self._unread
        while len(unread) < length:
            unread += self._receive(timeout)
        taken = bytes(unread[:length])
        del unread[:length]
        return taken

    def _receive(self, timeout: float) -> bytes:
        with self._socket_error_handling():
            while True:
                try:
                    chunk: bytes = self._socket.recv(_MANY)
                except _WOULD_BLOCK:
                    if not self.handler.select([self._socket], [], [], timeout)[0]:
                        raise KazooTimeoutError("The server does not answer.") from None
                    continue
                if not chunk:
                    raise ConnectionDropped("The server has closed the connection.")
                return chunk

    def wake(self, *, again: bool = False) -> None:
        """See to it that the connection thread looks at the queue; from any thread.

        :param again: the call before may have been interrupted
        """
        waking = self._write_sock
        if waking is None:
            raise ConnectionError("The connection has been closed.")
        if again or not (self._awake or self._completing == threading.get_ident()):
            self._awake = True
            with suppress(BlockingIOError):  # full, and so awake
                waking.send(b"\0")

    def _connect(self, host: str, *address: Any) -> Any:
        self._unread.clear()
        self.handler.hostname = host
        try:
            timeouts = super()._connect(host, *address)
        except (ConnectionDropped, AuthFailedError) as error:
            cause = error.__context__ if isinstance(error, ConnectionDropped) else error
            # It stays when the next address refuses: "localhost" has two, and an ensemble three.
            if isinstance(cause, ssl.SSLError | AuthFailedError):
                self.trouble = cause
            raise
        self.trouble = None
        return timeouts

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        try:
            result = super()._invoke(min(timeout, self.connect_timeout), request, xid)
        except KazooTimeoutError:
            # Behind a link that carries only our side, each of these requests renews the session
            # on the server, and with it locks that nobody can use. Let it expire.
            if time.monotonic() - self.lost_at > self.negotiated_timeout > 0:
                raise SessionExpiredError from None
            raise
        self.negotiated_timeout = result[0].time_out / 1000
        return result
