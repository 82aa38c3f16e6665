"""LeaseAcquisition a lease: when it is free, when it has ended, or, by its owner, again."""

from __future__ import annotations

import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from distlock.engine.client import NoNode
from distlock.engine.deadline import now
from distlock.queue.timer import call_later

from .nodes import encode
from .operation import UNKNOWN, Renewal

if TYPE_CHECKING:
    from .nodes import Term

#: A waiter looks again after this many seconds at the latest.
LOOK_AGAIN_SECONDS: Final = 60.0
#: Two times that were rounded down to milliseconds lie so far apart at most, in seconds.
_ROUNDING: Final = 0.002


class LeaseAcquisition(Renewal):
    """Takes the lease when it is free or has ended, or renews it where the owner has it already.

    What it has taken it gives back when the caller goes before it was told, as long as this process
    lives. After that the lease ends by its time.

    :param try_only: settle as soon as somebody else has it
    """

    def __init__(self, *args: Any, try_only: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        #: Whether the grant is this call's own, and not the renewal of what the owner had.
        self.fresh = False
        self._try_only = try_only
        #: The version that was given back.
        self._given_up: int | None = None
        self._parents_error: BaseException | None = None
        self._watched = False
        #: When the timer rings (`time.monotonic`).
        self._due = math.inf
        #: Taken while something is under way, so that the timer and the watch start one look.
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
        # Also when the caller has gone: the write whose answer was lost may have taken the lease.
        if not self.left or self._unsure:
            self._look()
        else:
            self._rest()

    # --- taking ----------------------------------------------------------------------------------

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
            # After a lost answer this may be what we have written ourselves.
            self.fresh = self.fresh and term.attempt == self.attempt
            self._renew(term)
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
        if due < self._due:  # one that rings early does no harm
            self._due = due
            call_later(seconds, self._timer_fired)

    def _timer_fired(self) -> None:
        if time.monotonic() >= self._due:  # or else it was set to a later time before this one
            self._due = math.inf
            self._look_again()

    def _look_again(self) -> None:
        self._changed = True
        if not self.left and self._turn.acquire(blocking=False):
            self._changed = False
            self.session.when_connected(self._begin_again)

    def _rest_if_idle(self) -> None:
        # While something is under way, its end does this: a watch may be about to be set.
        if self._turn.acquire(blocking=False):
            self._rest()

    def _rest(self) -> None:
        """Watch and attend no more."""
        self.session.heartbeat.dismiss(self)
        self.session.unwatch(self.path, self._node_changed)

    def deadline_renewed(self) -> None:
        """The session is alive, which is all that a waiter wants of its heartbeat."""

    def report(self) -> None:
        """A waiter has nothing to lose."""
