"""Gives the owner of a lease its token, tells how long it is sure, and keeps the running blocks."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from itertools import islice
from typing import Any, Final, TypeAlias, cast
from weakref import WeakValueDictionary

from django.core.signals import setting_changed
from django.dispatch import receiver

from distlock import process, signals
from distlock.engine.deadline import now
from distlock.exceptions import DistlockError, LockLost, NotOwner
from distlock.owner.hold import Hold, announce_change
from distlock.owner.owner import current
from distlock.session.session import Session

from .nodes import Term
from .operation import Operation

#: The part by which the server's clock may run faster than ours: twice what ntpd corrects at most,
#: and chrony with ``maxslewrate 500`` (docs/how-to/leases.md).
DRIFT: Final = 0.001


class _Grant:
    """Stands in for a contender, behind the hold of a lease."""

    shared = left = gone = False
    #: When its time is up, by `engine.deadline.now`.
    ends_at = 0.0

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def lost(self) -> bool:
        return self.gone or now() >= self.ends_at

    @property
    def lost_reason(self) -> str:
        return "broken" if self.gone else "expired"

    @property
    def at_risk(self) -> bool:
        return self.session.deadline.at_risk and not self.left


class LeaseHold(Hold):
    """A lease that its owner has, as far as this process knows.

    It is `lost` when its time is up by this process's clock, or when somebody else is known to have
    it. A late renewal that still succeeds makes that false again: nobody else has had the lease in
    between. It is `at_risk` while the connection is gone, so that it cannot be renewed. `verify`
    raises also if somebody else has it.

    :ivar key: the key of the lease
    :ivar path: the path of its node
    :ivar token: the fencing token, which renewals keep and which rises from owner to owner
    :ivar owner: the owner id
    :ivar acquired_at: when this process learned of it, an aware `datetime`
    """

    def __init__(self, operation: Operation, term: Term, *, sender: type) -> None:
        self._lease = grant = _Grant(operation.session)
        super().__init__(
            operation.key,
            operation.path,
            term.token,
            cast("Any", grant),
            using=operation.session.conf.alias,
        )
        self.owner = operation.owner
        self.started = time.monotonic()
        self._sender = sender
        self.renewed(operation, term)

    def renewed(self, operation: Operation, term: Term) -> None:
        self.term = term
        # From the time of sending: the server counts from the write, which is later.
        self._lease.ends_at = operation.sent_at + term.ttl * (1 - DRIFT)

    @property
    def expires(self) -> datetime:
        """When it ends without a renewal, an aware `datetime` of the server's clock."""
        return self.term.expires

    def valid_for(self) -> float:
        """Return the seconds for which nobody else can have the lease, even if the link is dead."""
        return 0.0 if self.lost or self.released else max(self._lease.ends_at - now(), 0.0)

    def _prove(self, node: tuple[bytes, Any] | None) -> None:
        term = Term.read(*node) if node else None
        if term is None or (term.owner, term.token) != (self.owner, self.token):
            self.lose()

    def lose(self, *, tell: bool = True) -> None:
        """Note that the lease is gone, or somebody else's, and report that once if it is news."""
        told, self._lease.gone = self._lease.gone or self._lease.left, True
        if tell and not told:
            announce_change(self._sender, self, signals.lock_lost)

    def end(self) -> None:
        """Note that the lease was released. Repeating it is fine."""
        if self.released:
            return
        self._lease.left = True
        signals.announce(
            signals.lock_released,
            self._sender,
            self,
            hold=self,
            held_for=time.monotonic() - self.started,
        )


#: The alias, the znode name and the owner id.
Identity: TypeAlias = tuple[str, str, str]

#: The owners' leases, as this process knows them.
known: WeakValueDictionary[Identity, LeaseHold] = WeakValueDictionary()
#: The leases kept until they end, even if no code here refers to them.
_kept: dict[Identity, LeaseHold] = {}


def note(identity: Identity, operation: Operation, *, sender: type) -> LeaseHold:
    """Return the hold for a term written just now: the same object for the same token."""
    term = operation.term
    if term is None:
        raise RuntimeError("This operation has written no term.")
    hold = known.get(identity)
    if hold is not None and hold.token == term.token:
        hold.renewed(operation, term)
        return hold
    if hold is not None:
        hold.lose(tell=has_blocks(hold))
    for other, oldest in list(islice(_kept.items(), 2)):  # so that few ended leases are kept
        _kept.pop(other, None)
        if oldest.valid_for() > 0:
            _kept[other] = oldest
    hold = known[identity] = _kept[identity] = LeaseHold(operation, term, sender=sender)
    return hold


def forget(identity: Identity, hold: LeaseHold | None = None) -> None:
    """Forget an owner's lease, or only this hold of it."""
    if hold is None or known.get(identity) is hold:
        known.pop(identity, None)
        _kept.pop(identity, None)


def note_loss(error: DistlockError, identity: Identity, hold: LeaseHold | None) -> None:
    """Mark `hold` as lost if `error` says that the owner does not have it."""
    if hold is not None and isinstance(error, LockLost | NotOwner):
        forget(identity, hold)
        hold.lose(tell=isinstance(error, LockLost))
        if isinstance(error, LockLost):
            error.hold, error.reason = hold, hold.lost_reason


@receiver(setting_changed)
def _forget_all(*, setting: str = "DISTLOCK", **_: Any) -> None:
    if setting == "DISTLOCK":
        known.clear()
        _kept.clear()


#: The running ``with`` blocks on leases.
_blocks: list[Block] = []
# Reentrant: a signal handler may end a block inside its thread's.
_ending = threading.RLock()


class Block:
    """One ``with`` block on a lease, of this thread or task; it runs from `begin` on."""

    def __init__(self, lease: object, hold: LeaseHold) -> None:
        self.lease = lease
        self.hold = hold
        self.here = current().id

    def begin(self) -> None:
        # Apart from the making: whoever is interrupted in between knows the block that is to end.
        _blocks.append(self)

    def end(self) -> bool:
        """Forget the block; return whether no other one needs its hold. Repeating it is fine."""
        with _ending:
            if self in _blocks:
                _blocks.remove(self)
            return not has_blocks(self.hold)


def innermost(lease: object) -> Block | None:
    """Return the innermost block on a lease in this thread or task."""
    here = current().id
    mine = [block for block in list(_blocks) if block.lease is lease and block.here == here]
    return mine[-1] if mine else None


def has_blocks(hold: LeaseHold) -> bool:
    """Return whether a block runs on a hold, in any thread or task."""
    return any(block.hold is hold for block in list(_blocks))


@process.in_child
def _forget_the_parent() -> None:
    global _ending  # noqa: PLW0603 - a thread of the parent may have held it at the fork
    _ending = threading.RLock()
    _blocks.clear()
    _forget_all()
