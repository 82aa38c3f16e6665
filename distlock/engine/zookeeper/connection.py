"""kazoo's connection: one thread serves it, with few calls and few system calls.

- *Everything happens on the connection thread.* Requests are completed by callbacks that it runs at
  once and in the order of the server's answers, and so are watches. Callbacks never block, so there
  are no worker threads, no locks around the line of waiters, and no hop between an answer and its
  consequence.
- *One unreachable server does not use up the time of the others.*
- *The negotiated session timeout is kept*; kazoo only logs it.
- *No error ends the connection thread.* It reconnects, and the session goes on.
"""

from __future__ import annotations

import errno
import os
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from distlock.engine import kazoo
from distlock.engine.calls import this_thread
from distlock.engine.deadline import now
from distlock.engine.guard import report_once
from distlock.engine.serving import MANY, SHORTEST_PAUSE, WOULD_BLOCK, Serving
from distlock.engine.wire import Wire, packed
from distlock.jute import INTEGER, REPLY
from distlock.logs.loggers import logger

from .requests import Borrowed

#: The longest reply, in bytes. A longer one is garbage: text read as a length is greater than this.
_LONGEST_REPLY: Final = 2**28
_UNKNOWN: Final = "no host name in HOSTS can be resolved"
#: The reasons after which no server has been spoken to.
UNREACHED: Final = (_UNKNOWN, os.strerror(errno.ECONNREFUSED))
#: The number of a request that ends a session before anything else is asked.
_GOODBYE_XID: Final = 1


class Connection(Serving, kazoo.ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which keeps the negotiated timeout and knows why it ended."""

    _socket: Any
    #: The least that was granted to the session of now, in seconds.
    negotiated_timeout = 0.0
    connect_timeout = 1.0
    # Often enough that a session at rest has a contact that counts (see `engine.deadline`), and not
    # so often that pings come between heartbeats.
    pings = 5
    #: When the last connection was lost.
    lost_at = 0.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Whether a server has ever taken the credentials.
        self._admitted = False
        self._reported: set[tuple[Any, ...]] = set()
        #: When the ping was sent that is not answered yet (`deadline.now`).
        self._asked_at: float | None = None
        #: When the server has last sent anything.
        self._heard_at = 0.0
        #: Bytes from the server that are not read yet.
        self._unread = bytearray()

    def zk_loop(self) -> None:
        self.thread = threading.get_ident()
        this_thread.ours = True
        try:
            super().zk_loop()
        finally:
            self.client.stopped = True
            self._socket = self.wire = None
            self.close()

    def _connect_loop(self, retry: Any) -> Any:
        """Connect and serve, again and again, until the client stops.

        kazoo's own loop ends with an error in the pause between two tries.
        """
        while not self.client._stopped.is_set():
            try:
                self.client.before_connecting()
                return super()._connect_loop(retry)
            except kazoo.ForceRetryError:
                self.client.disconnected()
            except BaseException as error:  # noqa: BLE001 - the session would end with the thread
                self.trouble = error
                report_once(error, self._reported)
                self.client._session_callback(kazoo.KeeperState.CONNECTING)
            self.pause(self.client._stopped.wait)
        return None

    @contextmanager
    def _socket_error_handling(self) -> Iterator[None]:
        try:
            with super()._socket_error_handling():
                yield
        except Exception as error:
            self.failure = error
            raise

    def _expand_client_hosts(self) -> Any:
        found = [] if self.client.cut_off else super()._expand_client_hosts()
        if not found:
            self.failure = OSError(_UNKNOWN)
        return found

    # --- serving ---------------------------------------------------------------------------------

    def _read_socket(self, read_timeout: float) -> Any:
        # kazoo's loop comes here once, not once for each request and each reply.
        self._asked_at = None
        self.serve(read_timeout)
        return kazoo.CLOSE_RESPONSE

    packed = staticmethod(packed)

    def _ping(self, timeout: float) -> None:
        """Ask whether the server is there, unless it has not answered yet, or has just answered."""
        wire, rest = self.wire, self.negotiated_timeout / self.pings
        rest += self.client.deadline.contacted_at - now()
        if self._asked_at is not None:
            if now() - max(self._asked_at, self._heard_at) >= self.negotiated_timeout / 3:
                raise kazoo.ConnectionDropped("The server does not answer.")
        elif rest > 0:
            self._ping_at = time.monotonic() + rest
        elif wire is None:
            self._ask(timeout)
        elif not wire.rest and self._reserve(wire):
            try:
                self._ask(timeout)
            finally:
                wire.lock.release()

    def _ask(self, timeout: float) -> None:
        self._asked_at = now()
        self._send_ping(timeout)

    def _finish(self, message: bytes, timeout: float) -> None:
        kazoo.ConnectionHandler._write(self, message, timeout)

    # --- receiving -------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Take what has come, and act on each reply and each watch event in it."""
        try:
            chunk = self._socket.recv(MANY)
        except WOULD_BLOCK:
            return
        if not chunk:
            raise kazoo.ConnectionDropped("The server has closed the connection.")
        self._heard_at = now()
        unread = self._unread
        unread += chunk
        while len(unread) >= INTEGER.size and not self.closed_session:
            (length,) = INTEGER.unpack_from(unread)
            if not REPLY.size <= length <= _LONGEST_REPLY:
                raise kazoo.ConnectionDropped(f"The server sent a reply of {length} bytes.")
            end = INTEGER.size + length
            if len(unread) < end:
                break
            content = bytes(unread[INTEGER.size : end])
            del unread[:end]
            xid, zxid, code = REPLY.unpack_from(content)
            if xid == kazoo.WATCH_XID:
                self.client.pass_on(content, REPLY.size)
            elif xid != kazoo.PING_XID:
                self._answer(xid, zxid, code, content)
            elif self._asked_at is not None:
                self.client.deadline.heard(self._asked_at, self.negotiated_timeout)
                self._asked_at = None

    def _answer(self, xid: int, zxid: int, code: int, content: bytes) -> None:
        """Settle the request to which the server has replied."""
        client = self.client
        if not client._pending or client._pending[0][2] != xid:
            # A follower may send a reply that was meant for the connection before (kazoo 254).
            # As Java's client does: drop the connection, and keep the session.
            raise kazoo.ConnectionDropped(f"The server sent a reply out of order: number {xid}.")
        request, reply, _ = client._pending[0]
        if reply is None:  # to the request that ends the session
            self.closed_session = True
            return
        value = error = None
        if code:
            # kazoo does not know all errors: NoWatcher only since 2.11.
            error = kazoo.EXCEPTIONS.get(code, kazoo.APIError)()
        else:
            try:
                value = request.deserialize(content, REPLY.size)
            except Exception as refusal:
                if not isinstance(request, kazoo.GetData | kazoo.GetChildren | Borrowed):
                    raise  # a write may have been carried out: its reply counts as lost
                error = refusal  # such as a name that is no UTF-8
        if request.type == kazoo.Transaction.type and error is None:
            value = kazoo.Transaction.unchroot(client, value)
        client._pending.popleft()
        if zxid > 0:
            client.last_zxid = zxid
        reply.settle(value, error)
        watcher = getattr(request, "watcher", None)
        if watcher is not None and error is None and not client.stopped:
            children = isinstance(request, kazoo.GetChildren)
            watchers = client._child_watchers if children else client._data_watchers
            watchers[request.path].add(watcher)

    def _read(self, length: int, timeout: float) -> Any:
        if not 0 <= length <= _LONGEST_REPLY:
            raise kazoo.ConnectionDropped(f"The server sent a reply of {length} bytes.")
        return super()._read(length, timeout)

    # --- connecting ------------------------------------------------------------------------------

    def _connect(self, host: str, *address: Any) -> Any:
        self.wire = None
        self._unread.clear()
        self.handler.hostname = host
        try:
            timeouts = super()._connect(host, *address)
        except (kazoo.ConnectionDropped, kazoo.AuthFailedError) as error:
            cause = error.__context__ if isinstance(error, kazoo.ConnectionDropped) else error
            # It stays when the next address refuses: "localhost" has two, and an ensemble three.
            if isinstance(cause, ssl.SSLError | kazoo.AuthFailedError):
                self.trouble = cause
            if self._admitted and cause is error:
                # kazoo's thread would end, and take the session and its locks along. These
                # credentials were right before: the server, or what it asks, is out of order.
                raise kazoo.ConnectionDropped(str(error)) from error
            raise
        except RuntimeError as error:
            if type(error) is not RuntimeError:
                raise
            # kazoo's word for an unknown error, and for a reply out of order.
            raise kazoo.ConnectionDropped(str(error)) from error
        self.trouble = None
        self.next_pause = SHORTEST_PAUSE
        self._admitted = True
        self.client.outage.end()
        self._busy_since = None
        if isinstance(self._socket, Wire):
            self.client._pending = self._socket.unanswered
            self.wire = self._socket
        return timeouts

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, kazoo.Connect):
            return super()._invoke(timeout, request, xid)
        timeout = min(timeout, self.connect_timeout)
        asked_at = now()
        overdue = time.monotonic() - self.lost_at > self.negotiated_timeout > 0
        seen = request.last_zxid_seen
        if overdue:
            # A server that has seen less than the session refuses it, in silence: for ever where it
            # was restored from a backup, or replaced by an empty one. Let it say what it knows.
            request = request._replace(last_zxid_seen=0)
        try:
            result = super()._invoke(timeout, request, xid)
        except kazoo.KazooTimeoutError:
            # Behind a link that carries only our side, each of these requests renews the session
            # on the server, and with it locks that nobody can use. Let it expire.
            if overdue:
                logger.warning("The server gave no answer for %.1f s: a new session.", timeout)
                raise kazoo.SessionExpiredError from None
            raise
        session_id, granted = result[0].session_id, result[0].time_out / 1000
        if overdue and granted > 0:
            self._end_if_older(seen, timeout)
        if session_id == self.client.session_id and granted > self.negotiated_timeout:
            # Only this connection has it. The next leader, and a server that restarts, count with
            # the session's first one (`ZooKeeperServer.processConnectRequest`,
            # `DataTree.sessionsWithTimeouts`).
            logger.warning(
                "The servers grant a session timeout of %g s by now, and this session keeps the "
                "least that it was granted, %g s. Restart the process.",
                granted,
                self.negotiated_timeout,
            )
            granted = self.negotiated_timeout
        self.negotiated_timeout = granted
        self.client.deadline.connected(asked_at, granted)
        # Requests queued in the instant of the loss must not be carried out now: the requests after
        # them have failed. Once the session is closed, only its good-bye must still be sent.
        if not self.client._stopped.is_set():
            self.client._notify_pending(kazoo.KeeperState.CONNECTING)
        return result

    def _end_if_older(self, seen: int, timeout: float) -> None:
        """End the session if the server lacks what it has seen.

        There the session may have nodes that it has deleted since, which nobody would delete again.
        """
        if (super()._invoke(timeout, kazoo.PingInstance, kazoo.PING_XID) or 0) < seen:
            logger.warning("The server has seen less than the session: a new session.")
            super()._invoke(timeout, kazoo.CloseInstance, _GOODBYE_XID)
            raise kazoo.SessionExpiredError
