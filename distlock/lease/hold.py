"""Gives the owner of a lease its token, and tells in each process how long the lease is sure.

It also keeps the running ``with`` blocks on a lease, by thread or task. An interrupt may land
between any two steps. Then `Block.leave` undoes a begun block. So a block is an object of its own,
which may be removed more than once.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from itertools import islice
from os import getpid
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from weakref import WeakValueDictionary

from django.core.signals import setting_changed

from distlock import process, signals
from distlock.engine.deadline import now
from distlock.engine.errors import NoNode
from distlock.exceptions import LockLost, LockUnavailable, NotOwner
from distlock.logs.loggers import safe
from distlock.owner.hold import Hold, announce_change
from distlock.owner.owner import current

from .nodes import Term

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from .operation import Renewal

logger = safe(logging.getLogger("distlock"))

#: The part by which the server's clock may run faster than ours: twice the most that NTP corrects.
DRIFT: Final = 0.001


class LeaseHold(Hold):
    """A lease that its owner has, as far as this process knows.

    :ivar key: the key of the lease
    :ivar path: the path of its node
    :ivar token: the fencing token, which renewals keep and which rises from owner to owner
    :ivar owner: the owner id
    :ivar acquired_at: when this process learned of it, an aware `datetime`
    """

    def __init__(self, operation: Renewal, term: Term, *, sender: type) -> None:
        # It has no contender: this class answers for one.
        grant, using = cast("Any", None), operation.session.conf.alias
        super().__init__(operation.key, operation.path, term.token, grant, using=using)
        self.owner = operation.owner
        self.started = time.monotonic()
        #: The running blocks of this process on it.
        self.blocks: set[Block] = set()
        #: Guards `blocks`. Reentrant: a signal handler may end a block inside its thread's.
        self.lock = threading.RLock()
        self._session = operation.session
        self._sender = sender
        self._released = self._gone = False
        self.renewed(operation, term)

    def renewed(self, operation: Renewal, term: Term) -> None:
        """Take over a term that was written just now."""
        self.term = term
        # From the time of sending: the server counts from the write, which is later.
        self._until = operation.sent_at + term.ttl * (1 - DRIFT)

    @property
    def expires(self) -> datetime:
        """When it ends without a renewal, an aware `datetime` of the server's clock."""
        return self.term.expires

    @property
    def lost(self) -> bool:
        """Whether its time is up by this process's clock, or somebody else is known to have it.

        Reading it does not use the network. A late renewal that still succeeds makes it false
        again: nobody else has had the lease in between. It is true in a forked child.
        """
        return self._gone or now() >= self._until or self._pid != getpid()

    @property
    def lost_reason(self) -> str:
        """The reason of the loss, empty while the lease is not lost.

        ``"expired"``: its time is up. ``"broken"``: it is gone, or somebody else has it.
        """
        return "" if not self.lost else "broken" if self._gone else "expired"

    @property
    def at_risk(self) -> bool:
        """Whether the connection is gone, so that the lease cannot be renewed."""
        return self._session.deadline.at_risk and not (self.lost or self.released)

    @property
    def shared(self) -> bool:
        """Whether others may hold at the same time: never."""
        return False

    @property
    def released(self) -> bool:
        """Whether this process has released it."""
        return self._released

    def check(self) -> None:
        """Raise if the lease is lost. This compares clocks and never uses the network.

        :raises LockLost: stop, and roll back
        """
        if self.released:
            raise LockLost(f"The lease {self.key!r} was released.", hold=self)
        if self.lost:
            raise LockLost(
                f"The lease {self.key!r} of {self.owner!r} is lost, or was not renewed in time. "
                "Somebody else may have it. Stop, and do not write. Call renew() now and then in "
                "work that may take longer than the ttl.",
                hold=self,
            )

    def valid_for(self) -> float:
        """Return the seconds for which nobody else can have the lease, even if the link is dead."""
        return 0.0 if self.lost or self.released else max(self._until - now(), 0.0)

    def verify(self, *, timeout: float = 1.0) -> None:
        """Ask the leader whether the lease is still this one: one round trip.

        A server that is cut off from its leader does not answer. With the setting ``STRICT`` the
        question is a write, which a deposed leader does not answer either.

        :param timeout: seconds to wait for the answer
        :raises LockLost: its time is up, or it is gone, or somebody else has it
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
        """Note that the lease is gone, or somebody else's, and report that once.

        :param tell: False if that is no news: the owner may have released it elsewhere
        """
        told, self._gone = self._gone or self._released, True
        if tell and not told:
            announce_change(self._sender, self, signals.lock_lost)

    def end(self) -> None:
        """Note that the lease was released. Repeating it is fine."""
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


# --- the leases known to this process ------------------------------------------------------------

#: The alias, the znode name and the owner id.
Identity: TypeAlias = tuple[str, str, str]

_known: WeakValueDictionary[Identity, LeaseHold] = WeakValueDictionary()
#: The leases kept until they end, even if no code here refers to them.
_kept: dict[Identity, LeaseHold] = {}


def known(identity: Identity) -> LeaseHold | None:
    """Return an owner's lease, as this process knows it."""
    return _known.get(identity)


def note(identity: Identity, operation: Renewal, *, sender: type) -> LeaseHold:
    """Return the hold for a term written just now: the same object for the same token."""
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


@contextmanager
def forgotten_if_lost(identity: Identity, hold: LeaseHold | None) -> Iterator[None]:
    """Mark `hold` as lost if the block finds that the owner does not have it any more."""
    try:
        yield
    except (LockLost, NotOwner) as error:
        if hold is not None:
            forget(identity, hold)
            hold.lose(tell=isinstance(error, LockLost))
            if isinstance(error, LockLost):
                error.hold, error.reason = hold, hold.lost_reason
        raise


def _forget_two_of_the_ended() -> None:
    """Check the two oldest entries, so that few ended leases are kept."""
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


class Block:
    """One ``with`` block on a lease, compared by identity.

    :param blocks: the running blocks of its `PersistentLease`, of all threads and tasks
    :ivar hold: its hold, None before the grant
    """

    __slots__ = ("_blocks", "_here", "hold")

    def __init__(self, blocks: list[Block]) -> None:
        self.hold: LeaseHold | None = None
        self._blocks = blocks
        self._here = current().id

    def enter(self, hold: LeaseHold) -> None:
        """Begin the block."""
        self.hold = hold
        hold.blocks.add(self)
        self._blocks.append(self)

    def leave(self) -> bool:
        """Forget the block; return whether no other one needs its hold. Repeating it is fine."""
        with suppress(ValueError):
            self._blocks.remove(self)
        hold = self.hold
        if hold is None:
            return False
        with hold.lock:
            hold.blocks.discard(self)
            return not hold.blocks

    @staticmethod
    def innermost(blocks: list[Block]) -> Block | None:
        """Return the innermost block of this thread or task."""
        here = current().id
        mine = [block for block in list(blocks) if block._here == here]  # noqa: SLF001 - of this class
        return mine[-1] if mine else None


@contextmanager
def after_body(hold: LeaseHold, error: BaseException | None, *, proven: bool) -> Iterator[None]:
    """Release a lease after the body of a block, whose own exception takes precedence.

    :param error: the exception of the body
    :param proven: whether the lease was held to the end of the body
    """
    try:
        yield
    except LockLost:
        if error is None:
            raise
    except LockUnavailable as problem:
        if error is None and not proven:
            raise LockLost(
                f"Nobody knows whether the lease {hold.key!r} was held to the end: its time was "
                f"up, and {problem}",
                hold=hold,
            ) from problem
        logger.warning(
            "The lease %r could not be released. It ends by itself at %s: %s",
            hold.key,
            hold.expires,
            problem,
        )
