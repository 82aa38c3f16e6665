"""Acquires, renews, releases or reads the node of a lease, for one call.

Each of these is a program (`session.programs`): it looks, decides, and writes or deletes *on
condition of the version that it has judged*. So of two processes that take over, one fails; and a
lease that was renewed meanwhile is neither taken over nor removed. When an answer says that things
have changed, or gets lost, it looks again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import uuid4

from distlock.engine.deadline import now
from distlock.engine.errors import UNKNOWN, BadVersion, NodeExists, NoNode, NotConnected, TimeUp
from distlock.engine.reply import Done
from distlock.exceptions import LockLost, NotOwner
from distlock.session.programs import Driver, Program, Request, in_background
from distlock.session.session import Session

from .nodes import LeaseHolder, Term, encode, parent_of_leases

Error: TypeAlias = BaseException | None
#: The node has changed since the operation judged it; to be caught.
CHANGED: Final = (BadVersion, NoNode, NodeExists)


class Operation(Driver):
    """One call's work on a lease: its programs, and what it has learned.

    If the caller leaves before a lease that it takes has reached it, the lease is released again in
    the background. Otherwise it ends by its time.

    :param name: the znode name of the key
    :param said: the facts of the writer
    :param known: the owner's term as this process knows it, which spares the first look
    :param timeout: seconds to wait, 0 to try once, None for ever
    """

    session: Session

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        key: str,
        owner: str,
        said: Mapping[str, Any],
        known: Term | None,
        timeout: float | None,
    ) -> None:
        super().__init__(session, key, timeout)
        self.parent = parent_of_leases(session)
        self.path = f"{self.parent}/{name}"
        self.owner = owner
        #: The term as last seen or written, and when its write was sent.
        self.term = known
        self.sent_at = 0.0
        #: Whether the call may have taken the lease: it has sent such a write.
        self.reached = False
        self._exists = known is not None
        self._known = known
        self._said = {**said, "owner": owner}
        #: Identifies the call in the term with which it takes the lease.
        self._attempt = uuid4().hex
        #: Whether somebody else has had the lease.
        self._waits = False
        #: Whether the node is watched, and has not changed since.
        self._watched = False

    @property
    def holder(self) -> LeaseHolder | None:
        """The owner of the lease at the last look."""
        return LeaseHolder.of(self.path, self.term) if self._exists else None

    @property
    def taken(self) -> bool:
        """Whether this call has taken the lease: it did not renew one that the owner had."""
        term = self.term
        return term is not None and (term.owner, term.attempt) == (self.owner, self._attempt)

    def patience(self, asked_at: float) -> float:
        return self.rest(time.monotonic(), asked_at, in_line=self._waits, behind=self._waits)

    def ended(self, error: Exception) -> None:
        if not (isinstance(error, TimeUp) and self._waits and self.session.connected):
            super().ended(error)  # somebody else has the lease otherwise

    def leave(self) -> None:
        """Give up; what the call may have taken is released. Repeating it is fine."""
        super().leave()
        self.session.soon(self._clean_up)  # after a request that is being sent

    def _clean_up(self) -> None:
        self._unwatch()
        if self.reached:
            in_background(self.session, self._give_back())

    # --- programs --------------------------------------------------------------------------------

    def acquire(self, ttl: float) -> Program[bool]:
        """Take the lease if it is free or has ended, or renew it if the owner has it already.

        Wait for it otherwise, or return False if the call is not to wait.
        """
        while True:
            term = self.term
            if term is not None and term.owner == self.owner:
                error = yield from self._renew(term, max(ttl, term.ttl))
            elif not self._exists or self._ended:
                error = yield from self._take(ttl)
            elif self.try_only:
                return False
            else:
                yield from self._wait()
                error = NotConnected()
            if error is None:
                self._unwatch()
                return True
            yield from self._look()

    def renew(self, ttl: float, *, shorten: bool) -> Program[None]:
        """Let the owner's term begin anew; with `shorten` even if `ttl` is less than it has."""
        while self.term is None or (
            yield from self._renew(self.term, ttl if shorten else max(ttl, self.term.ttl))
        ):
            yield from self._look()
            if self.term is None or not self._is_owners(self.term, self._known):
                raise self._lost

    def release(self, *, only_known: bool = False) -> Program[None]:
        """Release the owner's lease; `only_known` unless the owner has renewed it elsewhere."""
        known = self._known if only_known else None
        error: Error = None
        while self.term is None or (error := (yield from self._remove(self.term))):
            # If the answer to our own delete was lost, it may have done it.
            unsure = isinstance(error, UNKNOWN)
            yield from self._look()
            if self.term is None or not self._is_owners(self.term, known):
                if unsure:
                    return
                if only_known:
                    raise self._lost
                raise NotOwner(
                    f"{self.owner!r} cannot release {self.key!r}: {self._whose}. It was released "
                    "before, has expired, or this owner has never taken it."
                )
            if known and self.term.attempt != known.attempt:
                return

    def look(self) -> Program[LeaseHolder | None]:
        """Return the owner of the lease, None if it is free or has ended."""
        yield from self._look()
        return None if self._ended else self.holder

    def _give_back(self) -> Program[None]:
        """Release what this call may have taken, unless somebody has written it since."""
        version, error = None, None
        yield from self._look()
        while self.taken and self.term and version in (None, self.term.version):
            version = self.term.version
            error = yield from self._remove(self.term)
            if not isinstance(error, UNKNOWN):
                return
            yield from self._look()

    # --- their steps -----------------------------------------------------------------------------

    def _look(self) -> Program[None]:
        """Read the time and the node."""
        while True:
            try:
                self.term = yield self._ask_time_and_node
            except UNKNOWN:
                continue
            except NoNode:
                self._exists, self.term = False, None
            else:
                self._exists = True
            return

    def _ask_time_and_node(self, done: Done) -> None:
        """Ask for both in one go. The answers come in this order."""
        errors: list[BaseException] = []

        def timed(_: Any, error: Error) -> None:
            if error is not None and not isinstance(error, NoNode):
                errors.append(error)

        def seen(value: Any, error: Error) -> None:
            error = errors[0] if errors else error
            self._watched = self._watched and error is None
            # Here, where nothing interrupts: a RecursionError would look like unreadable data.
            done(None if error else Term.read(*value), error)

        self.session.ask_time(self.parent, timed)
        if not self._waits or self._watched or self.left:
            self.session.read(self.path, seen)
        else:
            self._watched = True
            self.session.watch(self.path, self._node_changed, seen)

    def _change(self, request: Request) -> Program[tuple[Any, Error]]:
        """Write or delete; return the value, and an error after which another look helps."""
        try:
            return (yield request), None
        except (*CHANGED, *UNKNOWN) as error:
            return None, error

    def _remove(self, term: Term) -> Program[Error]:
        _, error = yield from self._change(partial(remove, self.session, self.path, term))
        return error

    def _renew(self, term: Term, ttl: float) -> Program[Error]:
        known = self._known
        if known and self._is_owners(term, known):
            # This process keeps its mark, which shows whether another one has renewed since.
            attempt = known.attempt
        else:
            attempt = self._attempt if self.taken else uuid4().hex
        return (yield from self._write(attempt, ttl, term, renewed=term))

    def _take(self, ttl: float) -> Program[Error]:
        ended = self.term
        error = yield from self._write(self._attempt, ttl, ended)
        while ended is None and isinstance(error, NoNode):
            _, error = yield from self._change(partial(self.session.create_containers, self.parent))
            error = error or (yield from self._write(self._attempt, ttl, None))
        return error

    def _write(
        self, attempt: str, ttl: float, over: Term | None, *, renewed: Term | None = None
    ) -> Program[Error]:
        """Write a term over another one, or over none."""
        data, sent_at = b"", 0.0
        mark = over.mark if over else uuid4().hex

        def steps(make: Any) -> list[Any]:
            marked = f"{self.path}/{mark}"
            if over is not None:
                return [make.presence(marked), make.writing(self.path, data, over.version)]
            made = [make.node(self.path), make.node(marked)]
            return [*made, make.writing(self.path, data, 0)]

        def send(done: Done) -> None:
            nonlocal data, sent_at
            self.reached = self.reached or renewed is None
            data, sent_at = encode(self._said, attempt, ttl, mark=mark, renewed=renewed), now()
            self.session.transact(steps, partial(written, done))

        def written(done: Done, outcomes: Any, error: Error) -> None:
            if error is None:
                self.session.lease_clock.note(outcomes[-1], sent_at)
            done(None if error else Term.read(data, outcomes[-1]), error)

        term, error = yield from self._change(send)
        if error is None:
            self._exists, self.term, self.sent_at = True, term, sent_at
        return error

    def _wait(self) -> Program[None]:
        """Wait until the node changes, or its term has ended."""
        self._waits = True
        remaining = self.session.lease_clock.remaining(self.term) if self.term else math.inf
        # Rounding to milliseconds moves two times apart. At the latest it notices a dead link.
        due = time.monotonic() + min(max(remaining, 0) + 0.002, 20.0)
        while self._watched and (rest := due - time.monotonic()) > 0:
            yield rest

    def _unwatch(self) -> None:
        if self._waits:
            self.session.unwatch(self.path, self._node_changed)

    def _node_changed(self, _: bool) -> None:
        self._watched = False
        self._wake()

    @property
    def _ended(self) -> bool:
        return self.term is not None and self.session.lease_clock.ended(self.term)

    def _is_owners(self, term: Term, known: Term | None) -> bool:
        """Return whether a term belongs to the owner, and is the known one."""
        return term.owner == self.owner and (known is None or term.token == known.token)

    @property
    def _whose(self) -> str:
        return f"it is held by {self.holder}" if self._exists else "it is free"

    @property
    def _lost(self) -> LockLost:
        return LockLost(
            f"{self.owner!r} has lost the lease {self.key!r}: {self._whose}. "
            "Stop, and do not write."
        )


def remove(session: Session, path: str, term: Term, done: Done) -> None:
    """Delete the node of a lease if it still has this term."""
    session.transact(
        lambda make: [make.deletion(f"{path}/{term.mark}"), make.deletion(path, term.version)], done
    )
