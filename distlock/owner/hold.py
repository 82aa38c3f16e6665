"""What a holder has in hand: the fencing token, and the news whether the lock is still held."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from distlock.engine.client import NoNode
from distlock.engine.deadline import now
from distlock.exceptions import LockLost

from . import process

if TYPE_CHECKING:
    from django.db.transaction import Atomic

    from distlock.queue.contender import Node, Place


class Hold:
    """One hold of a lock, from its first acquire to its last release.

    :ivar key: the key that was locked
    :ivar using: the alias in ``DISTLOCK``
    :ivar template: the template of `zk_locked` that the key was made from, empty without one
    :ivar path: the path of the lock node
    :ivar token: the fencing token, an int that rises from holder to holder of one key
    :ivar acquired_at: when the lock was granted, an aware `datetime`
    """

    def __init__(
        self, key: str, node: Node, place: Place, *, using: str, template: str = ""
    ) -> None:
        self.key = key
        self.using = using
        self.template = template
        self.path = node.path
        self.token = node.token
        self.acquired_at = datetime.now(timezone.utc)
        self._place = place
        self._process = process.this

    def __repr__(self) -> str:
        state = "lost" if self.lost else "released" if self.released else "held"
        return f"<Hold of {self.key!r}, token {self.token}, {state}>"

    @property
    def lost(self) -> bool:
        """Whether the hold is lost, or cannot be proven to be held. Once true, it stays true.

        True when the session has ended, when the server has not been heard for two thirds of the
        session timeout, when the lock node is gone, when the hold was given up after its
        ``max_hold``, and in a forked child. No network.
        """
        return self._place.lost or self._process is not process.this

    @property
    def lost_reason(self) -> str:
        """Why the hold is lost, empty while it is not.

        ``"session"``: the session has ended, or could not be proven alive in time.
        ``"broken"``: the lock node is gone, as when an operator has broken the lock.
        ``"max_hold"``: it was held for longer than its ``max_hold``, and was given up.
        """
        return self._place.lost_reason if self.lost else ""

    @property
    def at_risk(self) -> bool:
        """Whether the connection is gone, and the hold is not lost yet. No network.

        True from the loss of the connection until ZooKeeper has confirmed the session over another
        one. Nobody else can have the lock meanwhile: `valid_for` tells how long that is certain.
        Source: the jeopardy of Google's Chubby.
        """
        return self._place.at_risk and not self.lost

    @property
    def shared(self) -> bool:
        """Whether others may hold at the same time: a reader's hold."""
        return self._place.shared

    @property
    def released(self) -> bool:
        """Whether it was given back."""
        return self._place.left

    @property
    def turn(self) -> int:
        """The number of this hold among those with its `token`, from 1; above it with ``handoff=``.

        The pair ``(hold.token, hold.turn)`` rises from hold to hold of one key.
        """
        turn: int = getattr(self._place, "turn", 1)
        return turn

    @property
    def superseded(self) -> bool:
        """Whether it was given back and a later hold with its `token` has begun (``handoff=``)."""
        superseded: bool = getattr(self._place, "superseded", False)
        return superseded

    def check(self) -> None:
        """Go on only if the hold is not lost. Compares clocks; never touches the network.

        Call it before each step that must not be done twice. Between a check and the step a
        process can still be stopped: what no lock can promise, the fencing `token` covers.

        :raises LockLost: stop, roll back
        """
        if self._place.left:
            raise LockLost(f"The lock {self.key!r} was released.", hold=self)
        if self.lost:
            raise lost(self)

    def valid_for(self) -> float:
        """Return for how many seconds nobody else can have the lock, even if the link is dead."""
        if self.lost or self.released:
            return 0.0
        place = self._place
        return max(min(place.session.deadline.remaining, place.ends_at - now()), 0.0)

    def verify(self, *, timeout: float = 1.0) -> None:
        """Ask the leader whether the lock node is still there: one round trip.

        A server that is cut off from its leader does not answer. With the setting ``STRICT`` the
        question is a write, which a leader that was deposed does not answer either.

        :param timeout: seconds to wait for the answer
        :raises LockLost: the node is gone
        :raises LockUnavailable: there was no answer
        """
        self.check()
        session = self._place.session
        try:
            session.answer(session.ask(session.verify, self.path), timeout, key=self.key)
        except NoNode:
            self._place.lose()
        self.check()


#: For those who find out at the end.
TOO_LATE = "What was done under it may have met another holder's work."
_REASONS = {
    "session": "its ZooKeeper session has ended, or could not be proven alive in time",
    "broken": "its node is gone, as when an operator breaks a lock",
    "max_hold": "it was held for longer than its max_hold, and was given up",
}


def lost(
    hold: Hold, advice: str = "Somebody else may hold it. Stop, and do not write."
) -> LockLost:
    """Return the error that says that, and why, `hold` is lost."""
    why = _REASONS[hold.lost_reason or "session"]
    return LockLost(f"The lock {hold.key!r} is lost: {why}. {advice}", hold=hold)


class Held:
    """What an owner keeps of a hold: how often it has acquired, and the transactions within."""

    __slots__ = ("count", "hold", "place", "started", "transactions")

    def __init__(self, hold: Hold, place: Place) -> None:
        self.hold = hold
        self.place = place
        self.count = 1
        self.started = time.monotonic()
        self.transactions: list[Atomic] = []
