"""Gives a holder the fencing token, and tells it whether the lock is still held."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from operator import attrgetter
from os import getpid
from types import SimpleNamespace
from typing import Any, Final

from django.db import Error, transaction
from django.db.transaction import Atomic
from django.dispatch import Signal

from distlock.contenders.grant import Grant
from distlock.engine.deadline import now
from distlock.engine.errors import NoNode
from distlock.exceptions import LockLost, LockUnavailable
from distlock.signals import Subject, announce, lock_lost, lock_released
from distlock.transactions import interruption

from .long_hold import LongHold, learn


class Hold:
    """One hold of a lock, from its first acquire to its last release.

    :ivar key: the key that was locked
    :ivar using: the alias in ``DISTLOCK``
    :ivar template: the template of `zk_locked` for the key, empty without one
    :ivar path: the path of the lock node
    :ivar token: the fencing token, an int that rises from holder to holder of one key
    :ivar acquired_at: when the lock was granted, an aware `datetime`
    :ivar waited: the seconds that the acquire waited
    """

    waited = 0.0
    #: Whether this is no hold: the block goes on without its lock (``on_unavailable="proceed"``).
    without_lock = False

    def __init__(
        self, key: str, path: str, token: int, grant: Grant, *, using: str, template: str = ""
    ) -> None:
        self.key = key
        self.using = using
        self.template = template
        self.path = path
        self.token = token
        self.acquired_at = datetime.now(timezone.utc)
        self._grant = grant
        self._pid = getpid()

    def __repr__(self) -> str:
        state = "lost" if self.lost else "released" if self.released else "held"
        return f"<Hold of {self.key!r}, token {self.token}, {state}>"

    @property
    def lost(self) -> bool:
        """Whether the hold is lost, or cannot be proven to be held. Once true, it stays true.

        It is true when the session has ended, when the session deadline has passed without an
        answer, when the lock node is gone, when the hold was given up after its
        ``max_hold``, and in a forked child. Reading it does not use the network.
        """
        return self._grant.lost or self._pid != getpid()

    @property
    def lost_reason(self) -> str:
        """The reason of the loss, empty while the hold is not lost.

        ``"session"``: the session has ended, or could not be proven alive in time.
        ``"broken"``: the lock node is gone, for example because an operator has broken the lock.
        ``"max_hold"``: the hold lasted longer than its ``max_hold``, and was given up.
        ``"expired"``: the time of a lease is up.
        ``"unavailable"``: there never was a lock (`without_lock`).
        """
        return self._grant.lost_reason if self.lost else ""

    @property
    def at_risk(self) -> bool:
        """Whether the connection is gone, and the hold is not lost yet.

        It is true from the loss of the connection until the lock server has confirmed the session
        over another one. Nobody else can have the lock meanwhile: `valid_for` returns how long
        that is certain. Reading it does not use the network.
        Source: the jeopardy of Google's Chubby.
        """
        return self._grant.at_risk and not self.lost

    @property
    def shared(self) -> bool:
        """Whether others may hold at the same time, as readers do."""
        return self._grant.shared

    @property
    def released(self) -> bool:
        """Whether the lock was released."""
        return self._grant.left

    @property
    def turn(self) -> int:
        """The number of this hold among those with its `token`, from 1; above it with ``handoff=``.

        The pair ``(hold.token, hold.turn)`` rises from hold to hold of one key.
        """
        turn: int = getattr(self._grant, "turn", 1)
        return turn

    @property
    def superseded(self) -> bool:
        """Whether the lock was released, and a later hold with its `token` began (``handoff=``)."""
        superseded: bool = getattr(self._grant, "superseded", False)
        return superseded

    def check(self) -> None:
        """Raise if the hold is lost. This compares clocks and never uses the network.

        Call it before each step that must not happen twice. The process can still be paused between
        the check and the step. No lock can prevent that; the fencing `token` covers it.

        :raises LockLost: stop, and roll back
        """
        grant = self._grant
        if grant.left:
            raise LockLost(f"The lock {self.key!r} was released.", hold=self)
        if grant.lost or self._pid != getpid():
            raise lost(self)

    def valid_for(self) -> float:
        """Return the seconds for which nobody else can have the lock, even if the link is dead."""
        if self.lost or self.released:
            return 0.0
        grant = self._grant
        return max(min(grant.session.deadline.remaining, grant.ends_at - now()), 0.0)

    def verify(self, *, timeout: float = 1.0) -> None:
        """Ask the leader whether the lock node still exists: one round trip.

        A server that is cut off from its leader does not answer. With the setting ``STRICT`` the
        question is a write, which a deposed leader does not answer either.

        :param timeout: seconds to wait for the answer
        :raises LockLost: the node is gone
        :raises LockUnavailable: there was no answer
        """
        self.check()
        session = self._grant.session
        try:
            node = session.call(session.verify, self.path, timeout=timeout, key=self.key)
        except NoNode:
            node = None
        self._prove(node)
        self.check()

    def _prove(self, node: tuple[bytes, Any] | None) -> None:
        """Note the loss if the node, as the leader knows it, proves one."""
        if node is None:
            self._grant.lose()


class NoHold(Hold):
    """Stands for the hold of a block that goes on without its lock: `lost` from the start.

    `check`, `verify` and `token` raise `LockUnavailable`.
    """

    without_lock = True

    def __init__(self, about: Subject, error: LockUnavailable) -> None:
        self.key, self.using, self.template = about.key, about.using, about.template
        self.path = ""
        self.acquired_at = datetime.now(timezone.utc)
        self._grant = _NOTHING
        self._error = error

    def __repr__(self) -> str:
        return f"<No hold of {self.key!r}>"

    @property
    def token(self) -> int:  # type: ignore[override]  # nobody sets it
        """There is none.

        :raises LockUnavailable: always
        """
        raise self._refusal

    @property
    def lost(self) -> bool:
        return True

    def check(self) -> None:
        raise self._refusal

    @property
    def _refusal(self) -> LockUnavailable:
        error = LockUnavailable(
            f'This block runs without the lock {self.key!r} (on_unavailable="proceed"), so it has '
            "no token and nothing to check. Leave out what needs the lock if hold.without_lock is "
            f"true, or raise instead: {self._error}",
            key=self.key,
            retry_after=self._error.retry_after,
            using=self.using,
        )
        error.__cause__ = self._error
        return error


#: Stands in for a grant that there is not.
_NOTHING: Final[Any] = SimpleNamespace(
    lost_reason="unavailable", at_risk=False, shared=False, left=False
)

#: Returns what a hold is held by, which its users do not see.
grant_of: Final[Callable[[Hold], Grant]] = attrgetter("_grant")

#: Advice for a holder that learns of the loss at the end.
TOO_LATE = "The work under it may have collided with another holder's."
#: The reasons of a loss (`Hold.lost_reason`), in words.
REASONS: Final = {
    "session": "its session has ended, or could not be proven alive in time",
    "broken": "its node is gone, as when an operator breaks a lock, or a lease is another owner's",
    "max_hold": "it was held for longer than its max_hold, and was given up",
    "expired": "it was not renewed in time (call renew() now and then in work that may outlast it)",
}


def lost(
    hold: Hold, advice: str = "Somebody else may hold it. Stop, and do not write."
) -> LockLost:
    """Return the error that reports the loss of `hold`, with its reason."""
    why = REASONS[hold.lost_reason or "session"]
    return LockLost(f"The lock {hold.key!r} is lost: {why}. {advice}", hold=hold)


def announce_change(sender: type, hold: Hold, signal: Signal) -> None:
    facts = {"reason": hold.lost_reason} if signal is lock_lost else {}
    announce(signal, sender, hold, hold=hold, **facts)


class Held:
    """A record of a hold: how often its owner has acquired, and the transactions within.

    :param sender: the class of the lock, the sender of its signals
    """

    __slots__ = (
        "count",
        "grant",
        "hold",
        "kept",
        "long",
        "release_old",
        "sender",
        "started",
        "transactions",
    )

    def __init__(self, sender: type, hold: Hold, grant: Grant) -> None:
        self.sender = sender
        self.hold = hold
        self.grant = grant
        self.count = 1
        #: How many of the acquires an open transaction will release.
        self.kept = 0
        self.started = time.monotonic()
        self.transactions: list[Atomic] = []
        #: Releases the lock that was taken before this one (``BESIDE``), and returns its error.
        self.release_old: Callable[[], Exception | None] | None = None
        #: Looks after it, once it has lasted for a heartbeat.
        self.long: LongHold | None = None
        grant.listen(self._heard)

    def _heard(self, news: Signal | None) -> None:
        if news is not None:
            announce_change(self.sender, self.hold, news)
            return
        self.long = self.long or LongHold(self)
        self.long.look()

    def announce_end(self) -> None:
        """Announce that the hold is released, and first a loss that nobody knows yet."""
        self.grant.report()
        held_for = time.monotonic() - self.started
        learn(self.hold.template or self.hold.key, held_for)
        announce(lock_released, self.sender, self.hold, hold=self.hold, held_for=held_for)

    def begin_transaction(self, database: str) -> None:
        block = transaction.atomic(using=database)
        block.__enter__()
        self.transactions.append(block)

    def end_transaction(self, error: BaseException | None) -> None:
        """Commit the innermost transaction or roll it back; never commit under a lost lock."""
        refused = lost(self.hold, "The transaction is rolled back.") if self.hold.lost else None
        known = sys.exc_info()[1]
        block = self.transactions.pop()  # just before its end: see `end_statements`
        if error is None and refused is not None:
            block.__exit__(type(refused), refused, None)
            raise refused
        try:
            block.__exit__(None if error is None else type(error), error, None)
        except Error as failure:
            interrupted = interruption(failure, known)
            if interrupted is None:
                raise
            raise interrupted from None
