"""Ending the session of a process that is dead. With `client` and `requests`, what knows kazoo.

ZooKeeper lets whoever knows a session's id and password carry it on, and so end it, with all its
nodes. That takes some 10 ms, where the server by itself waits for the session timeout.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from kazoo.protocol.states import KeeperState

from .client import Client

if TYPE_CHECKING:
    from .conf import Configuration

#: How long the server may take to answer the good-bye before it is said again, in seconds.
GOODBYE_SECONDS = 5.0
#: Of a client that has said good-bye: the session is known to have ended, now or before.
_OVER = {KeeperState.CLOSED, KeeperState.EXPIRED_SESSION}


class _Takeover(Client):
    """A client that carries on a session, or stops when there is none to carry on."""

    def __init__(self, conf: Configuration, session_id: int, password: bytes) -> None:
        #: Set when it is connected, or has nothing to connect for.
        self.settled = threading.Event()
        super().__init__(conf, lambda connected: self.settled.set() if connected else None)
        self._session_id, self._session_passwd = session_id, password

    def _session_callback(self, state: str) -> None:
        if state == KeeperState.EXPIRED_SESSION:
            self._stopped.set()  # or kazoo would open a new one
        super()._session_callback(state)
        if state in {*_OVER, KeeperState.AUTH_FAILED}:
            self.settled.set()


def end_session(conf: Configuration, session_id: int, password: bytes, timeout: float) -> bool:
    """End a session on the server, which frees its locks. Only for a process that is dead.

    :param timeout: seconds for which it is tried while ZooKeeper is away
    :return: whether the session was alive; False too when the server could not be asked
    """
    alive = False
    deadline = time.monotonic() + timeout
    while (remaining := deadline - time.monotonic()) > 0:
        client = _Takeover(conf, session_id, password)
        client.connect()
        client.settled.wait(remaining)
        alive = alive or client.live
        client.say_goodbye(GOODBYE_SECONDS)
        if client.client_state in _OVER:
            return alive
        if client.client_state == KeeperState.AUTH_FAILED:  # nor will it be next time
            break
    return False
