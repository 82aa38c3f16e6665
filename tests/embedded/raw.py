"""A client that may say anything, and say nothing."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from distlock.jute import Record, pack_boolean, pack_buffer, pack_integer
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from typing_extensions import Self


class Greeting(NamedTuple):
    timeout: int
    session_id: int
    password: bytes


class RawClient:
    """One connection to a server, without a session at first."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, *messages: bytes) -> None:
        """Send messages, each with its length."""
        self.send_bytes(b"".join(map(pack_buffer, messages)))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Record:
        """Return the next message."""
        return Record(self._read(int.from_bytes(self._read(4), "big")))

    def greet(self, timeout: float, session_id: int = 0, password: bytes = bytes(16)) -> Greeting:
        """Ask for a session.

        :param timeout: in seconds
        """
        milliseconds = pack_integer(round(timeout * 1000))
        seen = bytes(8)
        head = pack_integer(0) + seen + milliseconds + session_id.to_bytes(8, "big")
        self.send(head + pack_buffer(password) + pack_boolean(False))
        reply = self.receive()
        assert reply.integer() == 0
        return Greeting(reply.integer(), reply.long(), reply.buffer() or b"")

    def ask(self, kind: int, body: bytes = b"", *, xid: int = 1) -> tuple[int, Record]:
        """Return the error code of the reply to a request, and the rest."""
        self.send(pack_integer(xid) + pack_integer(kind) + body)
        reply = self.receive()
        assert reply.integer() == xid
        reply.long()
        return reply.integer(), reply

    def closed(self) -> bool:
        """Wait until the server closes the connection."""
        with suppress(ConnectionError):
            while self._socket.recv(65536):
                pass
        return True

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            some = self._socket.recv(count - len(data))
            if not some:
                raise ConnectionError("The server has closed the connection.")
            data += some
        return data


def event(raw: RawClient) -> tuple[int, str]:
    """Return the kind and the path of the watch event that comes next."""
    message = raw.receive()
    assert message.integer() == -1
    message.long()  # the transaction, of which servers tell since 3.9
    assert message.integer() == 0
    kind, state = message.integer(), message.integer()
    assert state == 3
    return kind, message.text()
