"""The sessions: each has a password, a timeout, and at most one connection.

Source: ZooKeeper's ``SessionTrackerImpl`` and ``ZooKeeperServer.processConnectRequest``.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .connection import Connection
    from .tree import MemoryTree

PASSWORD_LENGTH: Final = 16


@dataclass(eq=False, slots=True)
class Session:
    """One session."""

    id: int
    password: bytes
    #: In seconds.
    timeout: float = 0.0
    connection: Connection | None = None
    expires_at: float = 0.0

    def touch(self) -> None:
        """Let the session live for its timeout from now on, as its client is alive."""
        self.expires_at = time.monotonic() + self.timeout


class Sessions:
    """All sessions of a server.

    :param timeouts: the shortest and the longest timeout that a client may have, in seconds
    :param silent_ones_end: whether a connection keeps a session only by sending something
    """

    def __init__(
        self, tree: MemoryTree, timeouts: tuple[float, float], *, silent_ones_end: bool = True
    ) -> None:
        self._tree = tree
        self._silent_ones_end = silent_ones_end
        self._shortest, self._longest = timeouts
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def ids(self) -> list[int]:
        """Return the ids of all sessions."""
        return list(self._sessions)

    def open(
        self, connection: Connection, session_id: int, password: bytes, timeout: float
    ) -> Session | None:
        """Begin a session, or go on with one over a new connection.

        :param session_id: 0 for a new one
        :param timeout: the seconds that the client would like
        :return: None if that session is over, or has another password
        """
        timeout = min(max(timeout, self._shortest), self._longest)
        with self._tree.transaction():
            if not session_id:
                session_id = 0x100000000000000 + self._tree.zxid
                fresh = secrets.token_bytes(PASSWORD_LENGTH)
                session = self._sessions[session_id] = Session(session_id, fresh)
            else:
                found = self._sessions.get(session_id)
                if found is None or not secrets.compare_digest(found.password, password):
                    return None
                session = found
                if session.connection is not None:
                    session.connection.close("its session goes on over another connection")
            session.timeout, session.connection = timeout, connection
            self._tree.watches.forget(session_id)
            self._tree.listeners[session_id] = connection.event
        session.touch()
        return session

    def detach(self, session: Session, connection: Connection) -> None:
        """Let a session go on without its connection, which is lost, until its time is over."""
        if session.connection is connection:
            session.connection = None
            with self._tree.lock:
                self._tree.watches.forget(session.id)

    def end(self, session: Session) -> None:
        """End a session, and with it its ephemeral nodes."""
        if self._sessions.pop(session.id, None) is not None:
            self._tree.end_session(session.id)

    def expel(self, session_id: int) -> None:
        """End a session before its time is over, and its connection."""
        session = self._sessions.get(session_id)
        if session is not None:
            self.end(session)
            if session.connection is not None:
                session.connection.drop()

    def expire(self) -> None:
        """End the sessions whose clients have not been heard of for their timeout."""
        now = time.monotonic()
        for session in [one for one in self._sessions.values() if one.expires_at <= now]:
            if session.connection is None:
                self.end(session)
            elif self._silent_ones_end:
                self.end(session)
                session.connection.close(f"nothing came from it for {session.timeout:g} s")
