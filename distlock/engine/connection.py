"""kazoo's connection and its threads: one thread a connection, and few system calls.

- *Everything happens on the connection thread.* Requests are completed by callbacks that it runs at
  once and in the order of the server's answers, and so are watches. Callbacks never block, so there
  are no worker threads, no locks around the line of waiters, and no hop between an answer and its
  consequence.
- *One unreachable server does not use up the time of the others.*
- *The negotiated session timeout is kept*; kazoo only logs it.
- *No error ends the connection thread.* It reconnects, and the session goes on.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import struct
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import EXCEPTIONS, APIError, AuthFailedError, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import (
    CLOSE_RESPONSE,
    PING_XID,
    WATCH_XID,
    ConnectionDropped,
    ConnectionHandler,
)
from kazoo.protocol.serialization import (
    CloseInstance,
    Connect,
    GetChildren,
    GetData,
    PingInstance,
    ReplyHeader,
    Transaction,
)
from kazoo.protocol.states import KeeperState
from kazoo.retry import ForceRetryError

from distlock.logs.loggers import safe

from .wire import Wire

if TYPE_CHECKING:
    from .client import Reply

logger = safe(logging.getLogger("distlock"))

_LENGTH: Final = struct.Struct("!i")
_PREFIX: Final = struct.Struct("!ii")
#: The number of the request, the transaction that the server has seen last, an error or 0.
_HEADER: Final = struct.Struct("!iqi")
#: How much is read, or sent, in one go, in bytes.
_MANY: Final = 65536
#: The longest reply that is taken for one, in bytes. A longer one is garbage: text read as a length
#: is greater than this.
_LONGEST_REPLY: Final = 2**28
#: The number of a request that ends a session before anything else is asked.
_GOODBYE_XID: Final = 1
#: How long the connection thread waits for a thread that sends, and how often: then the send has
#: been interrupted, and the connection is dropped.
_BUSY_SECONDS: Final = 0.005
_BUSY_LOOKS: Final = 50
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
        #: Returns for how many seconds the connection thread may sleep; see `Connection`.
        self.fall_asleep: Callable[[float | None], float | None] = lambda timeout: timeout
        #: Whether the connection thread sleeps, or is about to.
        self.asleep = False
        #: The server's name, for its certificate. kazoo tells it only since 2.11.
        self.hostname = ""

    def start(self) -> None:
        """Start nothing: `_running` stays false, which makes kazoo run completions in place."""

    def stop(self) -> None:
        """Stop nothing."""

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        # A burst of requests fills it. A blocked connection thread would wait for itself, for ever.
        reading, waking = super().create_socket_pair()
        reading.setblocking(False)
        waking.setblocking(False)
        return reading, waking

    def dispatch_callback(self, callback: Any) -> None:
        guarded(callback.func, *callback.args)

    def create_connection(self, address: Any, timeout: float, **options: Any) -> socket.socket:
        # kazoo would give one dead server the whole session timeout.
        connected = self._create_connection(address, min(timeout, self._connect_timeout))
        connected.setblocking(False)  # a socket with a timeout asks poll() before each recv()
        # OpenSSL allows no two threads in one connection, one that sends and one that reads.
        return connected if isinstance(connected, ssl.SSLSocket) else Wire(connected)

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
        # Data that is decrypted already does not show on the socket, and kazoo's loop forgets it.
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
        in_loop = len(readers) > 1  # kazoo's, which also reads wake-ups
        if in_loop:
            allowed = self.fall_asleep(timeout)
            happened = dict(waiting.poll(None if allowed is None else allowed * 1000))
            self.asleep = False
            if allowed != timeout:  # there is work, as after a wake-up
                happened[readers[1].fileno()] = select.POLLIN
        else:
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

    _socket: Any
    negotiated_timeout = 0.0
    connect_timeout = 1.0
    ended = False
    #: Whether the server has acknowledged the end of the session.
    closed_session = False
    #: When the last connection was lost.
    lost_at = 0.0
    #: Why the last try to connect failed, where trying again will not help. kazoo forgets it.
    trouble: ssl.SSLError | AuthFailedError | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Whether a server has ever taken the credentials.
        self._admitted = False
        self._reported: set[tuple[Any, ...]] = set()
        #: Where any thread may send; None while there is no connection, and with TLS.
        self._wire: Wire | None = None
        #: The numbers of the requests. They go on over reconnections, other than kazoo's: a server
        #: may send the reply to a request of the connection before.
        self._xids = count()
        #: The connection thread.
        self._thread = 0
        #: How often in a row the wire was busy.
        self._busy = 0
        self.handler.fall_asleep = self._fall_asleep
        #: Bytes from the server that are not parsed yet.
        self._unread = bytearray()

    def zk_loop(self) -> None:
        self._thread = threading.get_ident()
        try:
            super().zk_loop()
        except InterruptedError:
            logger.debug("The connection was closed while it waited to reconnect.")
        finally:
            self.ended = True
            self._socket = self._wire = None
            self.close()

    def abandon(self) -> None:
        """Close the sockets of a client that was told to stop, if its thread does not."""
        if self.connection_stopped.is_set():  # the thread has not begun, or is at its end
            self.close()
        else:
            with suppress(OSError):  # it has closed them in this instant
                self.wake()

    def _connect_loop(self, retry: Any) -> Any:
        try:
            return super()._connect_loop(retry)
        except ForceRetryError:
            raise
        except BaseException as error:  # noqa: BLE001 - the session would end with the thread
            self._report(error)
            self.client._session_callback(KeeperState.CONNECTING)
            raise ForceRetryError("Reconnecting") from None

    def _report(self, error: BaseException) -> None:
        """Log an error that nobody has foreseen, once for each line that raises it."""
        innermost = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
        kind = type(error), innermost.f_code, innermost.f_lineno
        if kind not in self._reported:
            self._reported.add(kind)
            logger.error(
                "The connection to ZooKeeper failed in an unknown way. It reconnects. The same "
                "error is not logged again.",
                exc_info=error,
            )

    # --- many at a time --------------------------------------------------------------------------
    #
    # kazoo goes through its loop once for each request and each reply, with two to five system
    # calls each. Here it sends all that is queued in one go, takes all replies that are there, and
    # asks poll() only where it would have to wait.

    def transmit(self, request: Any, reply: Reply) -> bool:
        """Send a request from the calling thread; return False if the connection thread must.

        It must where it runs this itself, since it sends all that a reply leads to in one go; where
        something is queued, which goes first; with TLS; and while another thread sends.
        """
        wire = self._wire
        if wire is None or self.client._queue or self._thread == threading.get_ident():
            return False
        xid, message = self._message(request)
        sent = wire.transmit((request, reply, xid), message)
        if self.client._queue:  # by a thread that found the wire busy
            self.wake()
        return sent

    def _message(self, request: Any) -> tuple[int, bytes]:
        xid = next(self._xids) % 0x7FFFFFFF + 1
        content = _PREFIX.pack(xid, request.type) + request.serialize()
        return xid, _LENGTH.pack(len(content)) + content

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        with suppress(BlockingIOError):  # nobody has woken it
            self._read_sock.recv(_MANY)
        self._send_queued(connect_timeout)

    def _send_queued(self, timeout: float) -> None:
        steps, queue, wire = self.client.steps, self.client._queue, self._wire
        while steps:
            guarded(steps.popleft())
        if wire is None:
            self._send_all(queue, timeout)
        elif (queue or wire.rest) and self._reserve(wire):
            try:
                message, wire.rest = wire.rest, b""
                if message:
                    self._write(message, timeout)
                self._send_all(queue, timeout)
            finally:
                wire.lock.release()

    def _reserve(self, wire: Wire) -> bool:
        """Keep other threads from sending; return False while one does."""
        if wire.lock.acquire(blocking=False):
            self._busy = 0
            if not wire.unfinished:
                return True
            wire.lock.release()
        else:
            # A signal handler may run in the middle of a send, and wait for an answer itself.
            self._busy += 1
            if self._busy < _BUSY_LOOKS:
                return False
        raise ConnectionDropped("A send was interrupted.")

    def _send_all(self, queue: deque[tuple[Any, Reply | None]], timeout: float) -> None:
        parts: list[bytes] = []
        length = 0
        while queue and length < _MANY:
            request, reply = queue.popleft()
            try:
                xid, message = self._message(request)
            except Exception as error:  # noqa: BLE001 - in kazoo it would end the thread
                if reply is not None:
                    reply.set_exception(error)
                continue
            parts.append(message)
            length += len(message)
            self.client._pending.append((request, reply, xid))
        if parts:
            self._write(b"".join(parts), timeout)

    def _send_ping(self, connect_timeout: float) -> None:
        self._send_queued(connect_timeout)
        wire = self._wire
        if wire is None:
            super()._send_ping(connect_timeout)
        elif time.monotonic() - wire.sent_at < self.negotiated_timeout / 5:
            return  # every request is a ping, too
        elif not wire.rest and self._reserve(wire):
            try:
                super()._send_ping(connect_timeout)
            finally:
                wire.lock.release()

    def _write(self, message: bytes, timeout: float) -> None:
        with self._socket_error_handling(), suppress(*_WOULD_BLOCK):
            message = message[self._socket.send(message) :]
        if message:
            super()._write(message, timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        outcome = self._read_reply(read_timeout)
        while outcome is None and self._has_a_reply():
            outcome = self._read_reply(read_timeout)
        if outcome is None:
            self._send_queued(read_timeout)
        return outcome

    def _read_reply(self, timeout: float) -> Any:
        """Read one reply, watch event or answer to a ping, and act on it."""
        header, content, offset = self._read_header(timeout)
        if header.xid == PING_XID:
            self.ping_outstanding.clear()
            return None
        if header.xid == WATCH_XID:
            self._read_watch_event(content, offset)
            return None
        return self._read_response(header, content, offset)

    def _read_header(self, timeout: float) -> Any:
        length = _LENGTH.unpack(self._read(_LENGTH.size, timeout))[0]
        if not _HEADER.size <= length <= _LONGEST_REPLY:
            raise ConnectionDropped(f"The server sent a reply of {length} bytes.")
        content = self._read(length, timeout)
        return ReplyHeader(*_HEADER.unpack_from(content)), content, _HEADER.size

    def _read_response(self, header: Any, content: bytes, offset: int) -> Any:
        client = self.client
        if not client._pending or client._pending[0][2] != header.xid:
            # A follower may send a reply that was meant for the connection before (kazoo 254).
            # As Java's client does: drop the connection, and keep the session.
            raise ConnectionDropped(f"The server sent a reply out of order: {header}.")
        request, reply, _ = client._pending[0]
        if reply is None:  # to the request that ends the session
            self.closed_session = True
            return CLOSE_RESPONSE
        value, error = self._outcome(request, header, content, offset)
        client._pending.popleft()
        if header.zxid > 0:
            client.last_zxid = header.zxid
        if error is not None:
            reply.set_exception(error)
            return None
        reply.set(value)
        watcher = getattr(request, "watcher", None)
        if watcher and not client._stopped.is_set():
            children = isinstance(request, GetChildren)
            watchers = client._child_watchers if children else client._data_watchers
            watchers[request.path].add(watcher)
        return None

    def _outcome(
        self, request: Any, header: Any, content: bytes, offset: int
    ) -> tuple[Any, Exception | None]:
        """Return the value and the error that a reply carries."""
        if header.err:
            # kazoo does not know all errors: NoWatcher only since 2.11.
            return None, EXCEPTIONS[header.err if header.err in EXCEPTIONS else APIError.code]()
        try:
            value = request.deserialize(content, offset)
        except Exception as error:
            if isinstance(request, GetData | GetChildren):
                return None, error  # such as a name that is no UTF-8
            raise  # a write may have been carried out: its reply counts as lost
        if request.type == Transaction.type:
            value = Transaction.unchroot(self.client, value)
        return value, None

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

    # --- sleeping ---------------------------------------------------------------------------------
    #
    # Other threads only read whether the connection thread sleeps, and it looks for work after it
    # has said so: a thread that is interrupted between queueing a request and waking it leaves a
    # request that the next wake-up sends, and no state.

    def _fall_asleep(self, timeout: float | None) -> float | None:
        self.handler.asleep = True
        if not self._has_work():
            return timeout
        return _BUSY_SECONDS if self._busy else 0.0

    def _has_work(self) -> bool:
        wire = self._wire
        return bool(self.client.steps or self.client._queue or (wire is not None and wire.rest))

    def wake(self) -> None:
        """Wake the connection thread, after something was queued for it; from any thread."""
        waking = self._write_sock
        if waking is None:
            raise ConnectionError("The connection has been closed.")
        if self.handler.asleep:
            with suppress(BlockingIOError):  # full, and so awake
                waking.send(b"\0")

    def _connect(self, host: str, *address: Any) -> Any:
        self._wire = None
        self._unread.clear()
        self.handler.hostname = host
        try:
            timeouts = super()._connect(host, *address)
        except (ConnectionDropped, AuthFailedError) as error:
            cause = error.__context__ if isinstance(error, ConnectionDropped) else error
            # It stays when the next address refuses: "localhost" has two, and an ensemble three.
            if isinstance(cause, ssl.SSLError | AuthFailedError):
                self.trouble = cause
            if self._admitted and cause is error:
                # kazoo's thread would end, and take the session and its locks along. These
                # credentials were right before: the server, or what it asks, is out of order.
                raise ConnectionDropped(str(error)) from error
            raise
        except RuntimeError as error:
            if type(error) is not RuntimeError:
                raise
            # kazoo's word for an unknown error, and for a reply out of order.
            raise ConnectionDropped(str(error)) from error
        self.trouble = None
        self._admitted = True
        self._busy = 0
        if isinstance(self._socket, Wire):
            self.client._pending = self._socket.pending
            self._wire = self._socket
        return timeouts

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        timeout = min(timeout, self.connect_timeout)
        overdue = time.monotonic() - self.lost_at > self.negotiated_timeout > 0
        seen = request.last_zxid_seen
        if overdue:
            # A server that has seen less than the session refuses it, in silence: for ever where it
            # was restored from a backup, or replaced by an empty one. Let it say what it knows.
            request = request._replace(last_zxid_seen=0)
        try:
            result = super()._invoke(timeout, request, xid)
        except KazooTimeoutError:
            # Behind a link that carries only our side, each of these requests renews the session
            # on the server, and with it locks that nobody can use. Let it expire.
            if overdue:
                raise SessionExpiredError from None
            raise
        granted = result[0].time_out
        if overdue and granted > 0:
            self._end_if_older(seen, timeout)
        self.negotiated_timeout = granted / 1000
        # Requests queued in the instant of the loss must not be carried out now: the requests after
        # them have failed. Once the session is closed, only its good-bye must still be sent.
        if not self.client._stopped.is_set():
            self.client._notify_pending(KeeperState.CONNECTING)
        return result

    def _end_if_older(self, seen: int, timeout: float) -> None:
        """End the session if the server lacks what it has seen.

        There the session may have nodes that it has deleted since, which nobody would delete again.
        """
        if (super()._invoke(timeout, PingInstance, PING_XID) or 0) < seen:
            super()._invoke(timeout, CloseInstance, _GOODBYE_XID)
            raise SessionExpiredError
