"""A client whose server is in this process, at the other end of a pair of sockets."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distlock.conf.rules import REDIS
from distlock.engine.zookeeper.client import Client

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from distlock.conf import Configuration
    from distlock.embedded.server import EmbeddedZooKeeper

#: It is named, and never called.
_NOWHERE = "memory:1"
#: How long it pauses between two tries to connect, in seconds.
_PAUSE = 0.05


class MemoryClient(Client):
    """One connection to a server in this process, and its session of the moment.

    The session ends when a test says so, and never because its process was stopped for a while.

    :raises RuntimeError: the server belongs to the process from which this one was forked
    """

    def __init__(
        self,
        conf: Configuration,
        changed: Callable[[bool, int], None],
        *,
        zookeeper: EmbeddedZooKeeper,
    ) -> None:
        if zookeeper.tree.pid != os.getpid():
            raise RuntimeError(
                "The ZooKeeper in memory belongs to the process that made it, and this one was "
                "forked from that. Use a server in tests of several processes: the fixture "
                "`zookeeper_embedded`, or `zookeeper` for a real one."
            )
        _, slash, chroot = ("" if conf.engine == REDIS else conf.hosts).partition("/")
        # The server knows no TLS and no SASL, and nobody else can reach it.
        hosts = f"{_NOWHERE}{slash}{chroot}"
        super().__init__(replace(conf, hosts=hosts, auth=(), tls=None, acl="open"), changed)
        self._zookeeper = zookeeper
        #: Whether the test lets it connect.
        self.reachable = True
        self.handler.connected = self._connected_socket
        nowhere: Any = lambda: [("memory", "memory", 1)]  # noqa: E731 - no name server is asked
        self._connection._expand_client_hosts = nowhere  # noqa: SLF001
        self._connection.longest_pause = _PAUSE

    @property
    def server(self) -> str:
        """Tell that this is no host and port."""
        return "memory" if self._live.is_set() else ""

    def cut(self) -> None:
        """Lose the connection, and find no other until `mend`."""
        self.reachable = False
        self.drop()

    def mend(self) -> None:
        """Let it connect again."""
        self.reachable = True

    def expire(self) -> None:
        """Let the server end the session, and the connection with it."""
        session_id = self.session_id
        self._zookeeper.call_soon(lambda: self._zookeeper.expel(session_id))

    def _connected_socket(self, *_: object) -> socket.socket:
        if not self.reachable:
            raise ConnectionRefusedError("The test has cut the connection.")
        return self._zookeeper.connect()
