"""kazoo's threads and sockets: one thread a connection, and sockets that never block."""

from __future__ import annotations

import logging
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distlock.engine import kazoo
from distlock.engine.guard import guarded
from distlock.engine.wire import Wire
from distlock.logs.loggers import safe

logger = safe(logging.getLogger("distlock"))


class ConnectionWithReasons(kazoo.ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which knows why it ended, or could not be made."""

    _socket: Any
    #: Why the last try to connect failed, where trying again will not help. kazoo forgets it.
    trouble: BaseException | None = None
    #: The socket that was closed on this side because the server gave no answer.
    given_up: Any = None
    _failure: BaseException | None = None

    @property
    def reason(self) -> str:
        """Why there is no connection, in a few words."""
        if self.given_up is not None and self.given_up is self._socket:
            return "no answer in time"
        error = self.trouble or self._failure
        if isinstance(error, kazoo.ConnectionDropped) and isinstance(error.__context__, OSError):
            error = error.__context__  # kazoo's own text may be "None"
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return text.rstrip(".")

    @contextmanager
    def _socket_error_handling(self) -> Iterator[None]:
        try:
            with super()._socket_error_handling():
                yield
        except Exception as error:
            self._failure = error
            raise

    def _expand_client_hosts(self) -> Any:
        found = super()._expand_client_hosts()
        if not found:
            self._failure = OSError("no host name in HOSTS can be resolved")
        return found


class Handler(kazoo.SequentialThreadingHandler):  # type: ignore[misc]
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
        reading.setblocking(False)
        waking.setblocking(False)
        return reading, waking

    def dispatch_callback(self, callback: Any) -> None:
        guarded(callback.func, *callback.args)

    def create_connection(self, address: Any, timeout: float, **options: Any) -> socket.socket:
        # kazoo would give one dead server the whole session timeout.
        connected = self.connected(address, min(timeout, self._connect_timeout))
        connected.setblocking(False)  # a socket with a timeout asks poll() before each recv()
        # OpenSSL allows no two threads in one connection, one that sends and one that reads.
        return connected if isinstance(connected, ssl.SSLSocket) else Wire(connected)

    def connected(self, address: Any, timeout: float) -> socket.socket:
        """Return a new connection to a server."""
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
        if len(readers) > 1:
            # In kazoo's loop: `Connection._read_socket` serves until the connection ends.
            return readers[:1], [], []
        # Decrypted bytes do not show on the socket.
        ready = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.pending()]
        if ready:
            return ready, [], []
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
