"""Reads, renews or releases the node of a lease, for one call.

An operation looks, decides, and writes or deletes *on condition of the version that it has judged*.
So of two processes that take over, one fails; and a lease that was renewed meanwhile is neither
taken over nor removed. When an answer says that things have changed, or gets lost, the operation
looks again.

Completions on the connection thread drive an operation, and `waiting` waits for it. `acquisition`
has the operation that acquires a lease.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from distlock.engine.deadline import now
from distlock.engine.errors import BadVersion, ConnectionLost, NodeExists, NoNode, SessionOver
from distlock.exceptions import LockLost, NotOwner

from .nodes import LeaseHolder, Term, encode, parent_of_leases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlock.engine.reply import Done
    from distlock.exceptions import DistlockError
    from distlock.session.session import Session

#: The server carried the request out, or did not: nobody knows.
UNKNOWN = ConnectionLost | SessionOver
#: The node has changed since the operation judged it.
CHANGED = BadVersion | NoNode | NodeExists


class LeaseOperation:
    """Looks at a lease; a subclass decides what to do then.

    :param name: the znode name of the key
    :param known: the owner's term as this process knows it, which spares the first look
    """

    #: Never true: the hold knows the time at which a lease is lost.
    lost = False

    def __init__(
        self, session: Session, name: str, *, key: str, owner: str, known: Term | None = None
    ) -> None:
        self.session = session
        self.parent = parent_of_leases(session)
        self.path = f"{self.parent}/{name}"
        self.key = key
        self.owner = owner
        self.granted = False
        #: Whether the caller has left.
        self.left = False
        self.error: DistlockError | None = None
        #: 1 while somebody else has the lease; None before the first look.
        self.ahead: int | None = None
        #: Whether somebody else has had the lease at a look.
        self.was_in_line = False
        #: When the server was last asked (`time.monotonic`).
        self.asked_at = 0.0
        #: The term as last seen or written, and when its write was sent.
        self.term = known
        self.sent_at = 0.0
        self._exists = known is not None
        self._known = known
        #: Whether the answer to a write or delete was lost.
        self._unsure = False
        self._settled: Callable[[], None] = _nobody

    # --- for the caller --------------------------------------------------------------------------

    def awaited(self, settled: Callable[[], None]) -> Any:
        """Return the operation, which calls `settled` when it is granted or has failed."""
        self._settled = settled
        return self

    @property
    def node(self) -> LeaseOperation:
        """The operation itself, in place of a contender's node."""
        return self

    @property
    def holder(self) -> LeaseHolder | None:
        """The owner of the lease at the last look."""
        return LeaseHolder.of(self.path, self.term) if self._exists else None

    @property
    def ended(self) -> bool:
        """Whether the term of the last look has ended."""
        return self.term is not None and self.session.lease_clock.ended(self.term)

    def join(self) -> None:
        """Begin as soon as there is a connection; never blocks."""
        self.session.when_connected(self._begin)

    def leave(self) -> None:
        """Note that the caller has left. Repeating it is fine."""
        self.left = True

    # --- looking ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.left:
            return
        if self._known is None:
            self._begin_unknown()
        else:
            self._act_on(self._known)

    def _begin_unknown(self) -> None:
        self._look()

    def _look(self) -> None:
        """Ask for the time and the node in one go. The answers come in this order."""
        self.asked_at = time.monotonic()
        self.session.ask_time(self.parent, self._time_read)
        self._read()

    def _read(self) -> None:
        self.session.read(self.path, self._seen)

    def _time_read(self, stat: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, UNKNOWN | NoNode):
            self._fail(error)

    def _seen(self, value: Any, error: BaseException | None) -> None:
        if self.error is not None:
            return
        if error is not None and not isinstance(error, NoNode):
            self._refused(error)
            return
        self._exists = error is None
        self.term = Term.read(*value) if self._exists else None
        if self.left:
            self._abandon()
        elif error is None:
            self._present(self.term)
        else:
            self._absent()

    def _present(self, term: Term | None) -> None:
        """Decide what to do about a node. Its term is None if it is unreadable."""
        self._grant()

    def _absent(self) -> None:
        """Decide what to do without a node."""
        self._grant()

    def _abandon(self) -> None:
        """Clean up after a caller that has left; `term` is the last one seen."""

    # --- acting ----------------------------------------------------------------------------------

    def _act_on(self, term: Term) -> None:
        """Renew or end a term of the owner; one who only looks has none."""

    def _mark(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _write(self, data: bytes, term: Term) -> None:
        self.session.transact(
            lambda make: [
                make.presence(self._mark(term.mark)),
                make.writing(self.path, data, term.version),
            ],
            partial(self._written, data, now()),
        )

    def _written(
        self, data: bytes, sent_at: float, outcomes: Any, error: BaseException | None
    ) -> None:
        if error is None:
            self._exists, self.sent_at = True, sent_at
            self.session.lease_clock.note(outcomes[-1], sent_at)
            self.term = Term.read(data, outcomes[-1])
            self._grant()
        else:
            self._refused(error)

    def _remove(self, term: Term, then: Done) -> None:
        remove(self.session, self.path, term, then)

    def _removed(self, value: Any, error: BaseException | None) -> None:
        if error is None:
            self._grant()
        else:
            self._refused(error)

    def _refused(self, error: BaseException) -> None:
        """Look again if that helps, or fail."""
        if isinstance(error, UNKNOWN):
            self._unsure = True
            self.session.when_connected(self._begin_again)
        elif isinstance(error, CHANGED):
            self._begin_again()
        else:
            self._fail(error)

    def _begin_again(self) -> None:
        if not self.left:
            self._look()

    def _grant(self) -> None:
        self.granted = True
        self._settled()

    def _fail(self, error: BaseException) -> None:
        self._end(self.session.unavailable(self.key, error))

    def _end(self, error: DistlockError) -> None:
        self.error = error
        self._settled()


class Renewal(LeaseOperation):
    """Lets the owner's term begin anew.

    :param said: the facts of the writer
    :param ttl: seconds
    :param shorten: whether `ttl` may shorten a longer term
    """

    def __init__(
        self, *args: Any, said: Mapping[str, Any], ttl: float, shorten: bool = False, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        #: Identifies this call in its writes.
        self.attempt = uuid4().hex
        self._said = {**said, "owner": self.owner}
        self._ttl = ttl
        self._shorten = shorten

    def _act_on(self, term: Term) -> None:
        known = self._known
        # This process keeps its mark, which shows whether another one has renewed since.
        attempt = known.attempt if known and _same(term, self.owner, known) else self.attempt
        ttl = self._ttl if self._shorten else max(self._ttl, term.ttl)
        self._write(encode(self._said, attempt, ttl, mark=term.mark, renewed=term), term)

    def _present(self, term: Term | None) -> None:
        if not _same(term, self.owner, self._known):
            self._end(_lost(self, term))
        elif term is not None:
            self._act_on(term)

    def _absent(self) -> None:
        self._end(_lost(self, None, gone=True))


class Return(LeaseOperation):
    """Releases the owner's lease.

    :param only_known: keep the lease if the owner has renewed it elsewhere and still needs it
    """

    def __init__(self, *args: Any, only_known: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self._only_known = only_known

    def _act_on(self, term: Term) -> None:
        self._remove(term, self._removed)

    def _present(self, term: Term | None) -> None:
        if term is None or not _same(term, self.owner, self._known if self._only_known else None):
            self._gone(term)
        elif self._only_known and self._known and term.attempt != self._known.attempt:
            self._grant()
        else:
            self._act_on(term)

    def _absent(self) -> None:
        self._gone(None, gone=True)

    def _gone(self, term: Term | None, *, gone: bool = False) -> None:
        if self._unsure:  # our own delete, whose answer was lost, has done it
            self._grant()
        elif self._only_known:
            self._end(_lost(self, term, gone=gone))
        else:
            self._end(
                NotOwner(
                    f"{self.owner!r} cannot release {self.key!r}: {_whose(self, term, gone)}. It "
                    "was released before, has expired, or this owner has never taken it."
                )
            )


def remove(session: Session, path: str, term: Term, done: Done) -> None:
    """Delete the node of a lease if it still has this term."""
    session.transact(
        lambda make: [make.deletion(f"{path}/{term.mark}"), make.deletion(path, term.version)], done
    )


def _same(term: Term | None, owner: str, known: Term | None) -> bool:
    """Return whether a term belongs to the owner, and is the known one."""
    return term is not None and term.owner == owner and (known is None or term.token == known.token)


def _lost(operation: LeaseOperation, term: Term | None, *, gone: bool = False) -> LockLost:
    return LockLost(
        f"{operation.owner!r} has lost the lease {operation.key!r}: "
        f"{_whose(operation, term, gone)}. Stop, and do not write."
    )


def _whose(operation: LeaseOperation, term: Term | None, gone: bool) -> str:
    return "it is free" if gone else f"it is held by {LeaseHolder.of(operation.path, term)}"


def _nobody() -> None:
    """Do nothing, since nobody waits yet."""
