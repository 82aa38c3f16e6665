"""Acquires a lease that is free or has ended, or renews it for its owner."""

from __future__ import annotations

import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from distlock.engine.deadline import now
from distlock.engine.errors import NoNode
from distlock.engine.timer import call_later

from .nodes import encode
from .operation import UNKNOWN, Renewal

if TYPE_CHECKING:
    from .nodes import Term

#: A waiter looks again after this many seconds at the latest.
LOOK_AGAIN_SECONDS: Final = 60.0
#: The most by which rounding to milliseconds moves two times apart, in seconds.
_ROUNDING: Final = 0.002


class LeaseAcquisition(Renewal):
    """Takes the lease when it is free or has ended, or renews it if the owner has it already.

    If the caller leaves before the grant reaches it, the lease is released again, as long as this
    process lives. Otherwise the lease ends by its time.

    :param try_only: settle as soon as somebody else has it
    """

    def __init__(self, *args: Any, try_only: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Whether this call took the lease, and did not renew one that the owner had.
        self.fresh = False
        self._try_only = try_only
        #: The version that was released.
        self._given_up: int | None = None
        self._parents_error: BaseException | None = None
        self._watched = False
        #: When the timer is due (`time.monotonic`).
        self._due = math.inf
        #: Held while a look is under way, so that the timer and the watch start only one.
        self._turn = threading.Lock()
        self._changed = False

    def join(self) -> None:
        self._turn.acquire()
        super().join()

    def leave(self) -> None:
        super().leave()
        self.session.heartbeat.dismiss(self)
        self.session.soon(self._rest_if_idle)  # where no signal interrupts it
        if self.granted and self.fresh and self.term is not None:
            self._give_back(self.term)

    def _begin_unknown(self) -> None:
        self._create()

    def _begin_again(self) -> None:
        # Even after the caller has left: a write whose answer was lost may have taken the lease.
        if not self.left or self._unsure:
            self._look()
        else:
            self._rest()

    # --- acquiring -------------------------------------------------------------------------------

    def _create(self) -> None:
        if self.left:
            return
        self.fresh = True
        self.asked_at = time.monotonic()
        mark = uuid4().hex
        data = encode(self._said, self.attempt, self._ttl, mark=mark)
        self.session.transact(
            lambda make: [
                make.creation(self.path),
                make.creation(self._mark(mark)),
                make.writing(self.path, data, 0),
            ],
            partial(self._created, data, now()),
        )

    def _created(
        self, data: bytes, sent_at: float, outcomes: Any, error: BaseException | None
    ) -> None:
        if isinstance(error, NoNode):
            self._make_parents()
        else:
            self._written(data, sent_at, outcomes, error)

    def _make_parents(self) -> None:
        """Create the missing parents and try again, in one round trip; see `Place`."""
        if self._parents_error is not None:
            self._fail(self._parents_error)
            return
        self.session.create_containers(self.parent, self._parents_made)
        self._create()

    def _parents_made(self, value: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, UNKNOWN):
            self._parents_error = error

    def _present(self, term: Term | None) -> None:
        if term is None:
            self._wait(math.inf)
        elif term.owner == self.owner:
            # After a lost answer this may be our own write.
            self.fresh = self.fresh and term.attempt == self.attempt
            self._act_on(term)
        elif self.ended:
            self.fresh = True
            self._write(encode(self._said, self.attempt, self._ttl, mark=term.mark), term)
        else:
            self._wait(self.session.lease_clock.remaining(term))

    def _absent(self) -> None:
        self._watched = False
        self._create()

    def _abandon(self) -> None:
        self._rest()
        term = self.term
        if (
            self.fresh
            and term is not None
            and term.attempt == self.attempt
            and self._given_up in (None, term.version)
        ):
            self._give_back(term)

    def _grant(self) -> None:
        self.granted = True
        if not self.left:
            self._rest()
            self._settled()
        elif self.fresh and self.term is not None:  # `leave` looks at the two in the other order
            self._give_back(self.term)

    def _give_back(self, term: Term) -> None:
        self._unsure, self._given_up = True, term.version
        self.session.when_connected(partial(self._remove, term, self._given_back))

    def _given_back(self, value: Any, error: BaseException | None) -> None:
        if isinstance(error, UNKNOWN):
            self.session.when_connected(self._look)

    # --- waiting ---------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        """Look again when the node changes, and when the term has ended."""
        self.ahead = 1
        self.was_in_line = True
        if self._try_only:
            self._settled()
            return
        self.session.heartbeat.attend(self)  # so that a dead link is noticed
        self._set_timer(min(max(seconds, 0) + _ROUNDING, LOOK_AGAIN_SECONDS))
        self._turn.release()
        if self._changed:
            self._look_again()
        if self.left:  # after the release: `leave` looks at the two in the other order
            self._rest()

    def _read(self) -> None:
        if self._try_only or self._watched or self.left:
            super()._read()
        else:
            self._watched = True
            self.session.watch(self.path, self._node_changed, self._seen)

    def _node_changed(self, deleted: bool) -> None:
        self._watched = False
        self._look_again()

    def _set_timer(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        if due < self._due:  # an early call does no harm
            self._due = due
            call_later(seconds, self._timer_fired)

    def _timer_fired(self) -> None:
        if time.monotonic() >= self._due:  # or else an earlier order has fired
            self._due = math.inf
            self._look_again()

    def _look_again(self) -> None:
        self._changed = True
        if not self.left and self._turn.acquire(blocking=False):
            self._changed = False
            self.session.when_connected(self._begin_again)

    def _rest_if_idle(self) -> None:
        # A look under way does this at its end, since it may be about to set a watch.
        if self._turn.acquire(blocking=False):
            self._rest()

    def _rest(self) -> None:
        """Stop watching, and dismiss the heartbeat."""
        self.session.heartbeat.dismiss(self)
        self.session.unwatch(self.path, self._node_changed)

    def deadline_renewed(self) -> None:
        """Do nothing: a waiter only needs a living session."""

    def report(self) -> None:
        """Do nothing: a waiter has nothing to lose."""
