"""Acquires, renews, releases or reads the node of a lease, for one call.

Each of these is a *program*, a generator without I/O. It yields a request and is sent the answer,
or yields the seconds for which it has nothing to ask; it ends when its work is done. The caller's
steps drive it (`LeaseOperation.proceed`), so nobody else decides anything. Only what a caller that
has left may have taken is released in the background (`in_background`). No ``yield`` is in a
``try``: the garbage collector may end a program, and swallows a soft time limit that lands there.

A program looks, decides, and writes or deletes *on condition of the version that it has judged*. So
of two processes that take over, one fails; and a lease that was renewed meanwhile is neither taken
over nor removed. When an answer says that things have changed, or gets lost, it looks again.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from uuid import uuid4

from distlock.contenders.grant import remind
from distlock.engine.deadline import now
from distlock.engine.errors import (
    BadVersion,
    ConnectionLost,
    NodeExists,
    NoNode,
    NotConnected,
    SessionOver,
)
from distlock.engine.reply import Done
from distlock.exceptions import DistlockError, LockLost, NotOwner

from .nodes import LeaseHolder, Term, encode, parent_of_leases

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlock.engine.calls import Wake
    from distlock.session.session import Session

_T = TypeVar("_T")
#: The error of a request, if any.
Error: TypeAlias = BaseException | None
#: Yields what sends a request, and is sent its value and error; or yields seconds to wait.
Program: TypeAlias = Generator[Callable[[Done], None] | float, Any, _T]

#: The server carried the request out, or did not: nobody knows.
UNKNOWN = ConnectionLost | SessionOver
#: The node has changed since the operation judged it.
CHANGED = BadVersion | NoNode | NodeExists
#: A waiter looks again after this many seconds at the latest.
LOOK_AGAIN_SECONDS: Final = 60.0
#: The most by which rounding to milliseconds moves two times apart, in seconds.
_ROUNDING: Final = 0.002


class LeaseOperation:
    """Looks at a lease; a subclass has another `program`.

    :param name: the znode name of the key
    :param known: the owner's term as this process knows it, which spares the first look
    :param settled: wakes the caller
    """

    #: Never true: the hold knows the time at which a lease is lost.
    lost = False

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        key: str,
        owner: str,
        known: Term | None = None,
        settled: Wake,
    ) -> None:
        self.session = session
        self.parent = parent_of_leases(session)
        self.path = f"{self.parent}/{name}"
        self.key = key
        self.owner = owner
        self.granted = False
        #: Whether the caller has left.
        self.left = False
        #: When its caller has surely given up (`time.monotonic`).
        self.overdue_at = math.inf
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
        #: Whether this call has taken the lease, or may have: it did not renew one of the owner.
        self.fresh = False
        self._exists = known is not None
        self._known = known
        self._settled = settled
        self._program = self.program()
        self._answers: deque[tuple[Any, Error]] = deque()
        #: Whether the program waits for an answer.
        self._asking = False

    # --- for the caller --------------------------------------------------------------------------

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
        self.proceed()

    def proceed(self) -> float:
        """Take the next answer; return the seconds after which to call this again anyway."""
        if self.left or self.granted or self.error or (self._asking and not self._answers):
            return math.inf
        answer = self._answers.popleft() if self._asking else None
        self._asking = False
        try:
            asked = self._program.send(answer)
        except StopIteration:
            self.granted = True
        except DistlockError as error:
            self.error = error
        else:
            if isinstance(asked, float):
                return asked
            self._asking = True
            self.session.when_connected(partial(self._send, asked))
        return 0.0 if self._answers else math.inf

    def leave(self) -> None:
        """Give up; what the call may have taken is released. Repeating it is fine."""
        self.left = True

    def _send(self, request: Callable[[Done], None]) -> None:
        if not self.left:
            request(self._answered)

    def _answered(self, value: Any, error: Error) -> None:
        self._answers.append((value, error))
        self._settled()

    # --- programs --------------------------------------------------------------------------------

    def program(self) -> Program[None]:
        """Do what the operation is for."""
        yield from self._look()

    def _look(self) -> Program[None]:
        """Read the time and the node."""
        error: Error = NotConnected()
        while isinstance(error, UNKNOWN):
            self.asked_at = time.monotonic()
            term, error = yield self._ask_time_and_node
        if error is not None and not isinstance(error, NoNode):
            raise self.session.unavailable(self.key, error)
        self._exists = error is None
        self.term = term

    def _change(self, request: Callable[[Done], None]) -> Program[tuple[Any, Error]]:
        """Write or delete; return the outcome, and fail if another look does not help."""
        value, error = yield request
        if error is not None and not isinstance(error, CHANGED | UNKNOWN):
            raise self.session.unavailable(self.key, error)
        return value, error

    def _remove(self, term: Term) -> Program[Error]:
        _, error = yield from self._change(partial(remove, self.session, self.path, term))
        return error

    def _ask_time_and_node(self, done: Done) -> None:
        """Ask for both in one go. The answers come in this order."""
        errors: list[BaseException] = []

        def timed(_: Any, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, NoNode):
                errors.append(error)

        def seen(value: Any, error: BaseException | None) -> None:
            error = errors[0] if errors else error
            # Here, where nothing interrupts: a RecursionError would look like unreadable data.
            done(None if error else Term.read(*value), error)

        self.session.ask_time(self.parent, timed)
        self._read(seen)

    def _read(self, done: Done) -> None:
        self.session.read(self.path, done)


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

    def program(self) -> Program[None]:
        while self.term is None or (yield from self._renew(self.term)):
            yield from self._look()
            if self.term is None or not _same(self.term, self.owner, self._known):
                raise _lost(self)

    def _renew(self, term: Term) -> Program[Error]:
        known = self._known
        # This process keeps its mark, which shows whether another one has renewed since.
        attempt = known.attempt if known and _same(term, self.owner, known) else self.attempt
        ttl = self._ttl if self._shorten else max(self._ttl, term.ttl)
        return (yield from self._write(attempt, ttl, term, renewed=term))

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
            made = [make.creation(self.path), make.creation(marked)]
            return [*made, make.writing(self.path, data, 0)]

        def send(done: Done) -> None:
            nonlocal data, sent_at
            self.fresh = self.fresh or renewed is None
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


class LeaseAcquisition(Renewal):
    """Takes the lease when it is free or has ended, or renews it if the owner has it already.

    If the caller leaves before the grant reaches it, the lease is released again, as long as this
    process lives. Otherwise the lease ends by its time.

    :param try_only: wait for nobody
    """

    def __init__(self, *args: Any, try_only: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self._try_only = try_only
        #: Whether the node is watched, and has not changed since.
        self._watched = False

    def leave(self) -> None:
        super().leave()
        self.session.heartbeat.dismiss(self)
        if self.granted:
            self._clean_up()
        else:  # after a request that the connection thread may be sending
            self.session.soon(self._clean_up)

    def _clean_up(self) -> None:
        self.session.unwatch(self.path, self._node_changed)
        if self.fresh:
            in_background(self.session, self._give_back())

    def program(self) -> Program[None]:
        while not (yield from self._try()):
            yield from self._look()
        self.session.heartbeat.dismiss(self)
        if self._watched:
            self.session.unwatch(self.path, self._node_changed)

    def _try(self) -> Program[bool]:
        """Take or renew the lease, or wait for a change; return whether it was written."""
        term = self.term
        if term is not None and term.owner == self.owner:
            self.fresh = self._ours  # as after a lost answer
            error = yield from self._renew(term)
        elif not self._exists or self.ended:
            error = yield from self._take(term)
        else:
            self.fresh = False
            yield from self._wait(self.session.lease_clock.remaining(term) if term else math.inf)
            return False
        self.fresh = self.fresh and not isinstance(error, CHANGED)
        return error is None

    def _take(self, ended: Term | None) -> Program[Error]:
        self.asked_at = time.monotonic()
        error = yield from self._write(self.attempt, self._ttl, ended)
        while ended is None and isinstance(error, NoNode):
            _, error = yield from self._change(partial(self.session.create_containers, self.parent))
            error = error or (yield from self._write(self.attempt, self._ttl, None))
        return error

    @property
    def _ours(self) -> bool:
        """Whether this call has written the term."""
        term = self.term
        return term is not None and (term.owner, term.attempt) == (self.owner, self.attempt)

    def _give_back(self) -> Program[None]:
        """Release what this call may have taken, unless somebody has written it since."""
        version, error = None, None
        if not self.granted:
            yield from self._look()
        while self._ours and self.term and version in (None, self.term.version):
            version = self.term.version
            error = yield from self._remove(self.term)
            if not isinstance(error, UNKNOWN):
                return
            yield from self._look()

    # --- waiting ---------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> Program[None]:
        """Wait until the node changes, or its term has ended."""
        self.ahead = 1
        self.was_in_line = True
        self.session.heartbeat.attend(self)  # so that a dead link is noticed
        due = time.monotonic() + min(max(seconds, 0) + _ROUNDING, LOOK_AGAIN_SECONDS)
        while (self._watched or self._try_only) and (rest := due - time.monotonic()) > 0:
            yield rest

    def _read(self, done: Done) -> None:
        if self._try_only or self._watched or self.left:
            super()._read(done)
            return

        def seen(value: Any, error: BaseException | None) -> None:
            self._watched = self._watched and error is None
            done(value, error)

        self._watched = True
        self.session.watch(self.path, self._node_changed, seen)

    def _node_changed(self, _: bool) -> None:
        self._watched = False
        self._settled()

    def deadline_renewed(self) -> None:
        """Do nothing: a waiter only needs a living session."""

    def report(self) -> None:
        """Give up for a caller that never comes back; see `remind`."""
        remind(self)


class Return(LeaseOperation):
    """Releases the owner's lease.

    :param only_known: keep the lease if the owner has renewed it elsewhere and still needs it
    """

    def __init__(self, *args: Any, only_known: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self._only_known = only_known

    def program(self) -> Program[None]:
        known = self._known if self._only_known else None
        error: Error = None
        while self.term is None or (error := (yield from self._remove(self.term))):
            # If the answer to our own delete was lost, it may have done it.
            unsure = isinstance(error, UNKNOWN)
            yield from self._look()
            if self.term is None or not _same(self.term, self.owner, known):
                if unsure:
                    return
                if self._only_known:
                    raise _lost(self)
                raise NotOwner(
                    f"{self.owner!r} cannot release {self.key!r}: {_whose(self)}. It was released "
                    "before, has expired, or this owner has never taken it."
                )
            if known and self.term.attempt != known.attempt:
                return


def remove(session: Session, path: str, term: Term, done: Done) -> None:
    """Delete the node of a lease if it still has this term."""
    session.transact(
        lambda make: [make.deletion(f"{path}/{term.mark}"), make.deletion(path, term.version)], done
    )


def in_background(session: Session, program: Program[None]) -> None:
    """Run a program that only releases. If the server refuses, the lease ends by its time."""

    def go_on(*answer: Any) -> None:
        with suppress(StopIteration, DistlockError):  # done, refused, or nothing to release
            request: Any = program.send(answer or None)
            session.when_connected(partial(request, go_on))

    go_on()


def _same(term: Term, owner: str, known: Term | None) -> bool:
    """Return whether a term belongs to the owner, and is the known one."""
    return term.owner == owner and (known is None or term.token == known.token)


def _lost(operation: LeaseOperation) -> LockLost:
    return LockLost(
        f"{operation.owner!r} has lost the lease {operation.key!r}: {_whose(operation)}. "
        "Stop, and do not write."
    )


def _whose(operation: LeaseOperation) -> str:
    holder = operation.holder
    return f"it is held by {holder}" if holder else "it is free"
