"""Feeds a machine with what its caller and the session do, whatever the machine is.

The caller's thread makes the contender, lets it join, and sends the first requests. If one cannot
be sent, because there is no connection or the session has too many nodes, it applies the refusal,
too. Every later event is applied on the connection thread, in order: answers, watches, changes of
the connection, and what a caller posts. So there is no lock. One thing is shared by two threads: an
offer, which only one of them can take (`QueuedContender._take_offer`).

The session counts its connections; a contender that has missed a change catches up before the next
event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlock.queue import events as e

if TYPE_CHECKING:
    from distlock.session.session import Session


class Driver:
    """A contender as far as it hears of its session, from joining to leaving."""

    session: Session
    #: Whether the caller has given it up.
    left: bool
    error: Exception | None = None
    #: How many were ahead at the last look; None until the line has been seen.
    ahead: int | None = None
    #: Whether the line has ever been seen, with this node or an earlier one.
    was_in_line = False
    #: The number of the connection that the machine knows of.
    _connection = 0
    #: Whether it is known which of the first requests were sent.
    _sure = True
    #: Whether it hears of the session's connections.
    _attends = False
    #: Whether no connection matters to it any more.
    _over = False

    def apply(self, event: Any) -> None:
        """Apply an event to the machine, and carry its effects out."""
        raise NotImplementedError

    def follow(self, connection: int) -> None:
        """Make requests on this connection from now on; what was asked on another one is void."""
        raise NotImplementedError

    def hear(self, event: e.Event) -> None:
        """Apply an event that is no answer."""
        if self._connection != self.session.connection:
            self.connection_changed()
        self.apply(event)

    def connection_changed(self) -> None:
        """Take note of a connection that was lost, or of a new one."""
        session = self.session
        if self._connection != session.connection:
            self.follow(session.connection)
            self.apply(e.Disconnected())
            if session.connected:
                self.apply(e.Connected())

    def deadline_renewed(self) -> None:
        """Watch the own node from the first heartbeat on: an operator may break it."""
        if self._attends:  # or else its caller may be applying `Join` now
            self.hear(e.Renewed())

    def _attend(self) -> None:
        """Hear of the session's connections until all is done, and that the caller has left."""
        if self.left:
            self.apply(e.LEAVE if self._sure else e.Leave(sure=False))
        if not self._over:
            self._attends = True
            self.session.contenders.add(self)
            self.connection_changed()
