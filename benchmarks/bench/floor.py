"""The floor: the requests of a lock, sent by a client that does nothing else.

The caller writes to the socket itself; a thread only reads, and opens the caller's latch. Create
and list go out in one write, and nobody waits for the delete. It is no lock: it does not look at
the list, and survives neither errors nor a lost connection.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import Final
from uuid import uuid4

#: What handles a reply.
Handler = Callable[[bytes], object]

_INT: Final = struct.Struct("!i")
#: Of a request: its length, its number (replies come in order, so any will do), and its kind.
_HEAD: Final = struct.Struct("!iii")
#: Of a reply: what precedes the body.
_REPLY_HEAD: Final = 16
_CREATE, _DELETE, _CHILDREN, _PING = 1, 2, 8, 11
_EPHEMERAL_SEQUENTIAL: Final = 3
#: Anybody may do anything, and any version may be deleted.
_ACL: Final = struct.pack("!iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
_ANY_VERSION: Final = _INT.pack(-1)
#: About as much as locks write into their nodes.
_DATA: Final = b'{"v":1,"owner":"x","host":"h","pid":1,"worker":"MainThread","label":"","since":1}'


class BareClient:
    """A session of two threads: the caller's, and one that reads."""

    def __init__(self, host: str, port: int, session_timeout: float) -> None:
        milliseconds = int(session_timeout * 1000)
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connect = struct.pack("!iqiq", 0, 0, milliseconds, 0) + _text(bytes(16))
        self._socket.sendall(_text(connect))
        self._socket.recv(4096)
        self._silence = milliseconds // 3
        self._handlers: deque[Handler] = deque()
        self._writing = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, *requests: tuple[bytes, Handler]) -> None:
        """Send requests in one write; each handler gets its reply in the reading thread."""
        with self._writing:
            self._handlers.extend(handler for _, handler in requests)
            self._socket.sendall(b"".join(request for request, _ in requests))

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        buffer = bytearray()
        while True:
            if not poll.poll(self._silence):
                self.send((_request(_PING), ignore))
                continue
            received = self._socket.recv(65536)
            if not received:
                raise ConnectionError("The server has closed the connection.")  # into the log
            buffer += received
            start = 0
            while len(buffer) - start >= _INT.size:
                first = start + _INT.size
                end = first + _INT.unpack_from(buffer, start)[0]
                if end > len(buffer):
                    break
                self._handlers.popleft()(bytes(buffer[first:end]))
                start = end
            del buffer[:start]


class BareLock:
    """What one thread sends for a lock under `parent`, which exists."""

    def __init__(self, client: BareClient, parent: str) -> None:
        self._client = client
        self._parent = parent.encode()
        self._list = _request(_CHILDREN, _text(self._parent), b"\0")
        self._path = b""
        self._latch = threading.Lock()
        self._latch.acquire()

    def acquire(self) -> None:
        prefix = b"%b/_c_%b-lock-" % (self._parent, str(uuid4()).encode())
        flags = _INT.pack(_EPHEMERAL_SEQUENTIAL)
        create = _request(_CREATE, _text(prefix), _text(_DATA), _ACL, flags)
        self._client.send((create, self._created), (self._list, self._listed))
        self._latch.acquire()

    def release(self) -> None:
        self._client.send((_request(_DELETE, _text(self._path), _ANY_VERSION), ignore))

    def _created(self, reply: bytes) -> None:
        first = _REPLY_HEAD + _INT.size
        self._path = reply[first : first + _INT.unpack_from(reply, _REPLY_HEAD)[0]]

    def _listed(self, _: bytes) -> None:
        self._latch.release()


def ignore(_: bytes) -> None:
    """Handle a reply that nobody waits for."""


def _request(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return _HEAD.pack(_HEAD.size - _INT.size + len(body), 1, kind) + body


def _text(text: bytes) -> bytes:
    return _INT.pack(len(text)) + text
