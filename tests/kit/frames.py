"""A proxy that understands ZooKeeper's frames, and alters what the server sends."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self


def frame(content: bytes) -> bytes:
    """Return `content` as it is sent."""
    return struct.pack("!i", len(content)) + content


class FrameProxy:
    """Listens on `address` and passes all on to a server, and its answers through `alter`.

    The answer to the request for a session passes through `greet` instead.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.alter: Callable[[bytes], bytes | None] = frame
        self.greet: Callable[[bytes], bytes | None] = frame
        #: How many connections there have been.
        self.accepted = 0
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def pass_through(self) -> None:
        """Alter nothing from now on."""
        self.alter = self.greet = frame

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                server = socket.create_connection(self._target)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._open.append(end)
                for pump, *ends in ((_copy, client, server), (self._answers, server, client)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with _closing(server, client):
            first = True
            while True:
                content = _exactly(server, struct.unpack("!i", _exactly(server, 4))[0])
                altered = (self.greet if first else self.alter)(content)
                first = False
                if altered is None:
                    return
                client.sendall(altered)


def _copy(client: socket.socket, server: socket.socket) -> None:
    with _closing(server, client):
        while sent := client.recv(65536):
            server.sendall(sent)


@contextmanager
def _closing(*ends: socket.socket) -> Iterator[None]:
    """End both connections when one has ended."""
    try:
        with suppress(OSError, EOFError):
            yield
    finally:
        for end in ends:
            with suppress(OSError):  # a thread that reads from it wakes up, other than by close()
                end.shutdown(socket.SHUT_RDWR)


def _exactly(source: socket.socket, length: int) -> bytes:
    read = bytearray()
    while len(read) < length:
        chunk = source.recv(length - len(read))
        if not chunk:
            raise EOFError
        read += chunk
    return bytes(read)
