"""One client: its bytes are cut into messages, and carried out one after the other.

A client that breaks the protocol is disconnected, with a line in the log. One that sends requests
and never reads the replies is not read either, until its session's time is over.

Source: ZooKeeper's ``NIOServerCnxn``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from distlock.jute import (
    CLOSE,
    Malformed,
    Record,
    pack_boolean,
    pack_buffer,
    pack_greeting,
    pack_integer,
    pack_reply,
    pack_text,
)
from distlock.keys.limits import LONGEST_MESSAGE
from distlock.logs.loggers import safe

from .acl import OPEN
from .errors import Code, Refused
from .requests import Requests
from .sessions import PASSWORD_LENGTH
from .words import WORDS

if TYPE_CHECKING:
    from .acl import Acl
    from .server import EmbeddedZooKeeper
    from .sessions import Session
    from .watches import Event

logger = safe(logging.getLogger(__name__))

_EVENT_XID: Final = -1
_CONNECTED: Final = 3
#: The client at the other end of a pair of sockets.
_NO_PEER: Final = ("127.0.0.1", 0)


class Connection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        self._server = server
        self._buffer = bytearray()
        #: Whether the client reads what it is sent.
        self._reads = True
        self._requests: Requests | None = None
        self.session: Session | None = None
        #: Watch events that are not sent yet.
        self._events: deque[bytes] = deque()
        #: How many messages have come and gone.
        self.received = self.sent = 0
        #: Since when it has no session.
        self.idle_since = time.monotonic()

    def close(self, reason: str) -> None:
        """Disconnect the client at once, and log why."""
        logger.warning(
            "The embedded ZooKeeper closes the connection from %s: %s.", self.peer, reason
        )
        self.drop()

    def drop(self) -> None:
        """Disconnect the client at once."""
        self._transport.abort()

    def event(self, kind: Event, path: str, acl: Acl = OPEN) -> None:
        """Send a watch event, unless the client may not read the node now (ZooKeeper 4799).

        Any thread that changes the tree may call it, with the tree's lock held.
        """
        if self._requests is not None and not self._requests.may_read(acl):
            return
        body = pack_integer(kind) + pack_integer(_CONNECTED) + pack_text(path)
        self._events.append(pack_reply(_EVENT_XID, -1, 0, body))
        self._server.call_soon(self._send)

    # --- what asyncio calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        #: The client's address and port.
        self.peer: tuple[str, int] = (transport.get_extra_info("peername") or _NO_PEER)[:2]
        self._server.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._server.connections.pop(self, None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._work()

    def pause_writing(self) -> None:
        self._reads = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._reads = True
        self._work()
        if self._reads and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- messages --------------------------------------------------------------------------------

    def _work(self) -> None:
        """Carry out the messages that have come, as long as the client reads the replies."""
        try:
            while self._reads and not self._transport.is_closing():
                message = self._next()
                if message is None:
                    break
                if self._requests is None:
                    self._greet(Record(message))
                else:
                    self._answer(self._requests, Record(message))
        except Malformed as error:
            self.close(str(error))

    def _next(self) -> bytes | None:
        """Cut off the next message, None if it has not come as a whole."""
        if len(self._buffer) < 4:
            return None
        head = bytes(self._buffer[:4])
        if self._requests is None and head in WORDS:
            self._transport.write(WORDS[head](self._server).encode())
            self._transport.close()
            return None
        length = int.from_bytes(head, "big", signed=True)
        if not 0 <= length <= LONGEST_MESSAGE:
            raise Malformed(f"a message of {length} bytes, where {LONGEST_MESSAGE} are allowed")
        if len(self._buffer) < 4 + length:
            return None
        message = bytes(self._buffer[4 : 4 + length])
        del self._buffer[: 4 + length]
        self.received += 1
        return message

    def _greet(self, record: Record) -> None:
        """Take the first message, which asks for a session."""
        if not self._server.has_place(self):
            self.close("its user has half of the places")
            return
        record.integer(), record.long()  # the protocol's version, and what the client has seen
        timeout, session_id = record.integer() / 1000, record.long()
        password = record.buffer() or b""
        # Old clients do not ask whether a server without a quorum will do.
        tail = b"" if record.at_end else pack_boolean(False)
        session = self._server.sessions.open(self, session_id, password, timeout)
        if session is None:
            greeting = pack_greeting(0, 0, bytes(PASSWORD_LENGTH))
            self._send(pack_buffer(greeting + tail))
            self._transport.close()
            return
        self.session = session
        self._requests = Requests(self._server.tree, session.id, self.peer[0], self.event)
        greeting = pack_greeting(round(session.timeout * 1000), session.id, session.password)
        self._send(pack_buffer(greeting + tail))

    def _answer(self, requests: Requests, record: Record) -> None:
        xid, kind = record.integer(), record.integer()
        body, code = b"", 0
        with self._server.tree.lock:  # what another thread changes comes after the reply
            try:
                body = requests.perform(kind, record)
            except Refused as error:
                code = error.code
            if self.session is not None:
                self.session.touch()
                if kind == CLOSE:
                    self._server.sessions.end(self.session)
            self._send(pack_reply(xid, self._server.tree.zxid, code, body))
        if kind == CLOSE or code == Code.AUTH_FAILED:
            self._leave()
            self._transport.close()

    def _send(self, *replies: bytes) -> None:
        """Send the watch events that came before, and replies."""
        while self._events:
            self._write(self._events.popleft())
        for reply in replies:
            self._write(reply)

    def _write(self, message: bytes) -> None:
        self.sent += 1
        self._transport.write(message)

    def _leave(self) -> None:
        """Have no session any more; it may go on over another connection."""
        session, self.session = self.session, None
        if session is not None:
            self._server.sessions.detach(session, self)
            self.idle_since = time.monotonic()
