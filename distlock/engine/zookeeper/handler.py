"""kazoo's threads and sockets: one thread a connection, and sockets that never block."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from distlock.engine import kazoo
from distlock.engine.calls import start_thread
from distlock.engine.guard import guarded
from distlock.engine.wire import Wire


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
        plain = socket.create_connection(address, timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return plain
        with plain:  # it has been detached where all went well
            return self._tls.wrap_socket(plain, server_hostname=self.hostname)

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
        start_thread(thread)
        return thread
