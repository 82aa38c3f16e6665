"""The server: it listens on loopback, and ends what has had its time, all on one thread.

A client that breaks the protocol is disconnected, with a line in the log. One that sends requests
and never reads the replies is not read either, until its session's time is over.

Source: ZooKeeper's ``NIOServerCnxn``, ``SessionTrackerImpl`` and
``ZooKeeperServer.processConnectRequest``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from distlock import jute
from distlock.jute import Malformed, Record
from distlock.keys.limits import LONGEST_MESSAGE
from distlock.logs.loggers import safe

from .requests import Requests
from .rules import OPEN, Acl, Code, Refused
from .tree import Event, MemoryTree

logger = safe(logging.getLogger(__name__))

#: More are not admitted; a usual process may open 256 files on macOS, 1,024 on Linux.
MOST_CONNECTIONS: Final = 200
#: How long a client may take to ask for a session, in seconds.
GREETING_TIMEOUT: Final = 10.0

#: 2020-01-01, in seconds since 1970.
EPOCH: Final = 1_577_836_800

PASSWORD_LENGTH: Final = 16
#: The version whose answers it gives.
_VERSION: Final = "3.8.0-distlock-embedded"
_CONNECTED: Final = 3


@dataclass(eq=False, slots=True)
class Session:
    id: int
    password: bytes
    timeout: float = 0.0
    connection: Connection | None = None
    expires_at: float = 0.0

    def touch(self) -> None:
        self.expires_at = time.monotonic() + self.timeout


class Connection(asyncio.Protocol):
    def __init__(self, server: EmbeddedZooKeeper) -> None:
        self._server = server
        self._buffer = bytearray()
        #: Whether the client reads what it is sent.
        self._reads = True
        self._requests: Requests | None = None
        self.session: Session | None = None
        #: Watch events that are not sent yet.
        self._events: deque[bytes] = deque()
        #: Since when it has no session.
        self.idle_since = time.monotonic()

    def close(self, reason: str) -> None:
        """Disconnect the client at once, and log why."""
        logger.warning(
            "The embedded ZooKeeper closes the connection from %s: %s.", self.peer, reason
        )
        self.drop()

    def drop(self) -> None:
        self._transport.abort()

    def event(self, kind: Event, path: str, acl: Acl = OPEN) -> None:
        """Send a watch event, unless the client may not read the node now (ZooKeeper 4799)."""
        if self._requests is not None and not self._requests.may_read(acl):
            return
        body = jute.pack_integer(kind) + jute.pack_integer(_CONNECTED) + jute.pack_text(path)
        self._events.append(jute.pack_reply(-1, -1, 0, body))
        self._server.loop.call_soon_threadsafe(self._send)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        #: The client's address and port; it may have gone by now.
        peer = transport.get_extra_info("peername") or ("127.0.0.1", 0)
        self.peer: tuple[str, int] = peer[:2]
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
        return message

    def _greet(self, record: Record) -> None:
        """Take the first message, which asks for a session."""
        record.integer(), record.long()  # the protocol's version, and what the client has seen
        timeout, session_id = record.integer() / 1000, record.long()
        password = record.buffer() or b""
        # Old clients do not ask whether a server without a quorum will do.
        tail = b"" if record.at_end else jute.pack_boolean(False)
        self.session = self._server.open_session(self, session_id, password, timeout)
        granted = self.session or Session(0, bytes(PASSWORD_LENGTH))
        greeting = jute.pack_greeting(round(granted.timeout * 1000), granted.id, granted.password)
        self._send(jute.pack_buffer(greeting + tail))
        if self.session is None:
            self._transport.close()
        self._requests = Requests(self._server.tree, granted.id, self.peer[0], self.event)

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
                if kind == jute.CLOSE:
                    self._server.end(self.session)
            self._send(jute.pack_reply(xid, self._server.tree.zxid, code, body))
        if kind == jute.CLOSE or code == Code.AUTH_FAILED:
            self._leave()
            self._transport.close()

    def _send(self, reply: bytes = b"") -> None:
        """Send the watch events that came before, and a reply."""
        while self._events:
            self._transport.write(self._events.popleft())
        if reply:
            self._transport.write(reply)

    def _leave(self) -> None:
        """Have no session any more; it may go on over another connection."""
        session, self.session = self.session, None
        if session is not None:
            self.idle_since = time.monotonic()
            if session.connection is self:
                session.connection = None
                self._server.tree.forget(session.id)


class EmbeddedZooKeeper:
    """A ZooKeeper within this process, which other processes of the machine may use.

    ::

        with EmbeddedZooKeeper() as zookeeper:
            print(zookeeper.hosts)

    Transaction ids begin at the time of day, so fencing tokens also rise when it starts again. It
    listens on 127.0.0.1 only, as it asks nobody for a password.

    :param port: 0 for a free one
    :param session_timeouts: the shortest and the longest that a client may have, in seconds
    :param patient: a session with a connection lives on, also if its client is stopped for longer
        than the timeout, as by a debugger
    :param idle: it ends by itself after so many seconds without a connection
    :raises OSError: the port is in use
    """

    def __init__(
        self,
        port: int = 0,
        *,
        session_timeouts: tuple[float, float] = (2.0, 40.0),
        patient: bool = False,
        idle: float = math.inf,
    ) -> None:
        self.session_timeouts = session_timeouts
        # More transactions than it can carry out in a second.
        self.tree = MemoryTree(zxid=int((time.time() - EPOCH) * (1 << 20)))
        self.sessions: dict[int, Session] = {}
        #: The longest there first.
        self.connections: dict[Connection, None] = {}
        self._patient = patient
        self._idle = idle
        #: When somebody was connected last.
        self._used_at = time.monotonic()
        self._listening = socket.create_server(("127.0.0.1", port))
        # Accepted sockets inherit it. asyncio sets it only where a socket names its protocol.
        self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._listening.getsockname()[1]
        #: The address for ``HOSTS``.
        self.hosts = f"127.0.0.1:{self.port}"
        self.loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="embedded-zookeeper", daemon=True)

    def __enter__(self) -> EmbeddedZooKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):  # it has ended by itself
            self.loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server ends by itself, for so many seconds; return whether it has."""
        # An exception in Thread.join, as of Ctrl-C, spoils Python 3.11's thread.
        return self._ended.wait(timeout)

    def admit(self, connection: Connection) -> None:
        """Add a connection; if there are too many, the oldest without a session has to go."""
        self.connections[connection] = None
        if len(self.connections) > MOST_CONNECTIONS:
            stranger = next(one for one in self.connections if one.session is None)
            del self.connections[stranger]
            stranger.close(f"there are more than {MOST_CONNECTIONS}")

    def open_session(
        self, connection: Connection, session_id: int, password: bytes, timeout: float
    ) -> Session | None:
        """Begin a session if its id is 0, or go on with one, unless it is over or not its own."""
        shortest, longest = self.session_timeouts
        with self.tree.transaction():
            session = self.sessions.get(session_id)
            if not session_id:
                session_id = 0x100000000000000 + self.tree.zxid
                session = Session(session_id, secrets.token_bytes(PASSWORD_LENGTH))
                self.sessions[session_id] = session
            elif session is None or not secrets.compare_digest(session.password, password):
                return None
            elif session.connection is not None:
                session.connection.close("its session goes on over another connection")
            session.timeout = min(max(timeout, shortest), longest)
            session.connection = connection
            self.tree.forget(session_id)
            self.tree.listeners[session_id] = connection.event
        session.touch()
        return session

    def end(self, session: Session) -> None:
        """End a session, and with it its ephemeral nodes."""
        if self.sessions.pop(session.id, None) is not None:
            self.tree.end_session(session.id)

    def _expire(self) -> None:
        """End the sessions whose clients have not been heard of for their timeout."""
        now = time.monotonic()
        for session in [one for one in self.sessions.values() if one.expires_at <= now]:
            if session.connection is None:
                self.end(session)
            elif not self._patient:
                self.end(session)
                session.connection.close(f"nothing came from it for {session.timeout:g} s")

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        finally:
            self.loop.close()
            self._ended.set()

    async def _serve(self) -> None:
        server = await self.loop.create_server(lambda: Connection(self), sock=self._listening)
        self._tick()
        await self._stopping.wait()
        server.close()
        while self.connections:
            for connection in self.connections:
                connection.drop()
            await asyncio.sleep(0)

    def _tick(self) -> None:
        self.loop.call_later(0.2, self._tick)
        self._expire()
        self.tree.reap_when_due()
        now = time.monotonic()
        if self.connections:
            self._used_at = now
        elif now - self._used_at > self._idle:
            self._stopping.set()
        latest = now - GREETING_TIMEOUT
        for connection in self.connections:
            if connection.session is None and connection.idle_since < latest:
                connection.close(f"it has had no session for {GREETING_TIMEOUT:g} s")


def _srvr(server: EmbeddedZooKeeper) -> str:
    return (
        f"Zookeeper version: {_VERSION}\nConnections: {len(server.connections)}\n"
        f"Zxid: 0x{server.tree.zxid:x}\nMode: standalone\n"
    )


#: The four-letter words, which ask a server how it is. Source: ZooKeeper's ``server.command``.
WORDS: Final[dict[bytes, Callable[[EmbeddedZooKeeper], str]]] = {
    b"ruok": lambda _: "imok",
    b"isro": lambda _: "rw",
    b"envi": lambda _: f"Environment:\nzookeeper.version={_VERSION}\n",
    b"srvr": _srvr,
    b"conf": lambda server: f"clientPort={server.port}\n",
}
