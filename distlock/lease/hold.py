"""What the owner of a lease has in hand in one process: the token, and for how long it is sure."""

from __future__ import annotations

import threading
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from weakref import WeakValueDictionary

from django.core.signals import setting_changed

from distlock import process, signals
from distlock.engine.client import NoNode
from distlock.engine.deadline import now
from distlock.exceptions import LockLost, NotOwner
from distlock.owner.hold import Hold
from distlock.queue.contender import Node

from .nodes import Term

if TYPE_CHECKING:
    from datetime import datetime

    from .blocks import Block
    from .operation import Renewal

#: By which part the server's clock may run faster than ours: twice what NTP corrects by at most.
DRIFT: Final = 0.001


class LeaseHold(Hold):
    """A lease that its owner has, as far as this process knows.

    :ivar key: the key of the lease
    :ivar path: the path of its node
    :ivar token: the fencing token, which renewals keep and which rises from owner to owner
    :ivar owner: the owner id
    :ivar acquired_at: since when this process knows of it, an aware `datetime`
    """

    def __init__(self, operation: Renewal, term: Term, *, sender: type) -> None:
        # It has no place in a line: all that a hold asks of one is answered here.
        node, place = Node(operation.path, term.token, 0), cast("Any", None)
        super().__init__(operation.key, node, place, using=operation.session.conf.alias)
        self.owner = operation.owner
        self.started = time.monotonic()
        #: The blocks of this process that are under way on it.
        self.blocks: set[Block] = set()
        #: Guards `blocks`; a signal handler may end a block within that of its thread.
        self.lock = threading.RLock()
        self._session = operation.session
        self._sender = sender
        self._released = self._gone = False
        self.renewed(operation, term)

    def renewed(self, operation: Renewal, term: Term) -> None:
        """Count on a term that was written just now."""
        self.term = term
        # From the time of sending: the server counts from that of writing, which is later.
        self._until = operation.sent_at + term.ttl * (1 - DRIFT)

    @property
    def expires(self) -> datetime:
        """When it ends unless it is renewed, an aware `datetime` of the server's clock."""
        return self.term.expires

    @property
    def lost(self) -> bool:
        """Whether its time is up by this process's clock, or it is known to be another's.

        No network. A renewal that still succeeds makes good what was only late: then nobody else
        has had it in between. Also true in a forked child.
        """
        return self._gone or now() >= self._until or self._process is not process.this

    @property
    def lost_reason(self) -> str:
        """Why the lease is lost, empty while it is not.

        ``"expired"``: its time is up. ``"broken"``: it is gone, or another's.
        """
        return "" if not self.lost else "broken" if self._gone else "expired"

    @property
    def at_risk(self) -> bool:
        """Whether the connection is gone, without which it cannot be renewed. No network."""
        return self._session.deadline.at_risk and not (self.lost or self.released)

    @property
    def shared(self) -> bool:
        """Whether others may hold at the same time: never."""
        return False

    @property
    def released(self) -> bool:
        """Whether this process has given it back."""
        return self._released

    def check(self) -> None:
        """Go on only if the lease is not lost. Compares clocks; never touches the network.

        :raises LockLost: stop, roll back
        """
        if self.released:
            raise LockLost(f"The lease {self.key!r} was released.", hold=self)
        if self.lost:
            raise LockLost(
                f"The lease {self.key!r} of {self.owner!r} is lost, or was not renewed in time. "
                "Somebody else may have it. Stop, and do not write. Work that may take longer than "
                "the ttl calls renew() on its way.",
                hold=self,
            )

    def valid_for(self) -> float:
        """Return for how many seconds nobody else can have the lease, even if the link is dead."""
        return 0.0 if self.lost or self.released else max(self._until - now(), 0.0)

    def verify(self, *, timeout: float = 1.0) -> None:
        """Ask the leader whether the lease is still this one: one round trip.

        A server that is cut off from its leader does not answer. With the setting ``STRICT`` the
        question is a write, which a leader that was deposed does not answer either.

        :param timeout: seconds to wait for the answer
        :raises LockLost: its time is up, or it is gone or another's
        :raises LockUnavailable: there was no answer
        """
        self.check()
        session = self._session
        try:
            asked = session.ask(session.verify, self.path)
            term = Term.read(*session.answer(asked, timeout, key=self.key))
        except NoNode:
            term = None
        if term is None or (term.owner, term.token) != (self.owner, self.token):
            self.lose()
        self.check()

    def lose(self, *, tell: bool = True) -> None:
        """It is known to be gone, or another's; say so, once.

        :param tell: False where that is no news, since the owner may have released it elsewhere
        """
        told, self._gone = self._gone or self._released, True
        if tell and not told:
            signals.announce_change(self._sender, self, signals.lock_lost)

    def end(self) -> None:
        """It was given back. May be repeated."""
        if self._released:
            return
        self._released = True
        signals.announce(
            signals.lock_released,
            self._sender,
            self,
            hold=self,
            held_for=time.monotonic() - self.started,
        )


# --- what this process knows ---------------------------------------------------------------------

#: The alias, the znode name and the owner id.
Identity: TypeAlias = tuple[str, str, str]

_known: WeakValueDictionary[Identity, LeaseHold] = WeakValueDictionary()
#: Kept until they end, though nobody in this process has them in hand.
_kept: dict[Identity, LeaseHold] = {}


def known(identity: Identity) -> LeaseHold | None:
    """Return what this process knows of an owner's lease."""
    return _known.get(identity)


def note(identity: Identity, operation: Renewal, *, sender: type) -> LeaseHold:
    """Return the hold of a term that was written just now: for the same token the same object."""
    term = operation.term
    if term is None:
        raise RuntimeError("This operation has written no term.")
    hold = _known.get(identity)
    if hold is not None and hold.token == term.token:
        hold.renewed(operation, term)
        return hold
    if hold is not None:
        hold.lose(tell=bool(hold.blocks))
    _forget_two_of_the_ended()
    hold = _known[identity] = _kept[identity] = LeaseHold(operation, term, sender=sender)
    return hold


def forget(identity: Identity, hold: LeaseHold | None = None) -> None:
    """Forget an owner's lease, or only this hold of it."""
    if hold is None or _known.get(identity) is hold:
        _known.pop(identity, None)
        _kept.pop(identity, None)


def forget_lost(identity: Identity, hold: LeaseHold | None, error: BaseException) -> None:
    """Draw the consequence for `hold` where `error` says that it is not the owner's any more."""
    if isinstance(error, LockLost | NotOwner) and hold is not None:
        forget(identity, hold)
        hold.lose(tell=isinstance(error, LockLost))
        if isinstance(error, LockLost):
            error.hold, error.reason = hold, hold.lost_reason


def _forget_two_of_the_ended() -> None:
    """Look at the two that were left alone for longest, so that what is kept stays little."""
    for identity, hold in list(islice(_kept.items(), 2)):
        _kept.pop(identity, None)
        if hold.valid_for() > 0:
            _kept[identity] = hold


@process.in_child
def _forget_all(*, setting: str = "DISTLOCK", **_: Any) -> None:
    if setting == "DISTLOCK":
        _known.clear()
        _kept.clear()


setting_changed.connect(_forget_all)
