"""The server: listens on loopback, and ends what has had its time, all on one thread."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .connection import Connection
from .sessions import Sessions
from .tree import MemoryTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

#: More are not admitted; a usual process may open 256 files on macOS, 1,024 on Linux.
MOST_CONNECTIONS: Final = 200
#: One user of the machine may have so many with a session. Only Linux tells users apart.
MOST_OF_A_USER: Final = MOST_CONNECTIONS // 2
#: How long a client may take to ask for a session, in seconds.
GREETING_TIMEOUT: Final = 10.0
#: How often the server looks for what has had its time, in seconds.
_INTERVAL: Final = 0.2

#: Where Linux lists the sockets of the machine, with the user who has opened each.
_SOCKETS: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

#: 2020-01-01, in seconds since 1970.
EPOCH: Final = 1_577_836_800
#: More transactions than it can carry out in a second.
ZXIDS_PER_SECOND: Final = 1 << 20


class EmbeddedZooKeeper:
    """A ZooKeeper within this process, which other processes of the machine may use.

    ::

        with EmbeddedZooKeeper() as zookeeper:
            print(zookeeper.hosts)

    Transaction ids begin at the time of day, so fencing tokens also rise when it starts again.

    :param host: an address of this machine's loopback; None listens nowhere, and serves only the
        connections of `connect`
    :param port: 0 for a free one
    :param session_timeouts: the shortest and the longest that a client may have, in seconds
    :param idle: it ends by itself after so many seconds without a connection
    :raises ValueError: the address is not one of loopback
    :raises OSError: the port is in use
    """

    def __init__(
        self,
        host: str | None = "127.0.0.1",
        port: int = 0,
        *,
        session_timeouts: tuple[float, float] = (2.0, 40.0),
        idle: float = math.inf,
    ) -> None:
        self.session_timeouts = session_timeouts
        self.tree = MemoryTree(zxid=int((time.time() - EPOCH) * ZXIDS_PER_SECOND))
        # A client of this process that sends nothing is stopped, as by a debugger, and not dead.
        self.sessions = Sessions(self.tree, session_timeouts, silent_ones_end=host is not None)
        #: The longest there first.
        self.connections: dict[Connection, None] = {}
        self._idle = idle
        #: When somebody was connected last.
        self._used_at = time.monotonic()
        self._listening = None if host is None else _listen(host, port)
        self.port: int = self._listening.getsockname()[1] if self._listening else 0
        #: The address for ``HOSTS``.
        self.hosts = f"[{host}]:{self.port}" if ":" in str(host) else f"{host}:{self.port}"
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="embedded-zookeeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def connect(self) -> socket.socket:
        """Return a connection to the server, which no other process can make."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.call_soon(lambda: self._loop.create_task(self._accept(ours)))
        return theirs

    async def _accept(self, connected: socket.socket) -> None:
        await self._loop.connect_accepted_socket(lambda: Connection(self), connected)

    def call_soon(self, what: Callable[[], object]) -> None:
        """Call something on the server's thread; from any thread.

        :raises RuntimeError: the server has ended
        """
        self._loop.call_soon_threadsafe(what)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server ends by itself, and return whether it has.

        :param timeout: seconds; None waits for ever
        """
        # An exception in Thread.join, as of Ctrl-C, spoils Python 3.11's thread.
        return self._ended.wait(timeout)

    def admit(self, connection: Connection) -> None:
        """Add a connection; if there are too many, the oldest without a session has to go."""
        self.connections[connection] = None
        if len(self.connections) > MOST_CONNECTIONS:
            stranger = next(one for one in self.connections if one.session is None)
            del self.connections[stranger]
            stranger.close(f"there are more than {MOST_CONNECTIONS}")

    def has_place(self, connection: Connection) -> bool:
        """Return whether a connection may have a session, too."""
        taken = [one.peer[1] for one in self.connections if one.session is not None]
        if len(taken) < MOST_OF_A_USER:
            return True
        users = users_of_clients(self.port)
        user = users.get(connection.peer[1])
        return user is None or [*map(users.get, taken)].count(user) < MOST_OF_A_USER

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._ended.set()

    async def _serve(self) -> None:
        listening, accept = self._listening, self._loop.create_server
        server = listening and await accept(lambda: Connection(self), sock=listening)
        self._tick()
        await self._stopping.wait()
        if server:
            server.close()
        while self.connections:
            for connection in self.connections:
                connection.drop()
            await asyncio.sleep(0)

    def _tick(self) -> None:
        self._loop.call_later(_INTERVAL, self._tick)
        self.sessions.expire()
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


def _listen(host: str, port: int) -> socket.socket:
    address = ipaddress.ip_address(host)
    if not address.is_loopback:
        raise ValueError(
            f"host is {host}: the embedded ZooKeeper serves this machine only, as it asks nobody "
            "for a password. Give 127.0.0.1 or ::1."
        )
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return socket.create_server((host, port), family=family)


def users_of_clients(port: int) -> dict[int, str]:
    """Return the users of the clients of a port, by the clients' ports; none where nobody knows."""
    found = {}
    for file in _SOCKETS:
        with suppress(FileNotFoundError):
            for line in file.read_text().splitlines()[1:]:
                _, local, remote, _, _, _, _, user, *_ = line.split()
                if remote.endswith(f":{port:04X}"):
                    found[int(local.rpartition(":")[2], 16)] = user
    return found
