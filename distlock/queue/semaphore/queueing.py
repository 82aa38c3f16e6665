"""The part of a semaphore's contender that has no permits: its way through the queue.

`machine` has the rest, and tells what all of it is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from distlock.keys import znodes
from distlock.queue import events as e
from distlock.queue.local_line import LocalLine
from distlock.queue.machine import Machine
from distlock.queue.policies import FAIR
from distlock.queue.states import State

from . import events as s
from .events import LEASES, LOCKS, At
from .states import SemaphoreState, methods_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distlock.queue.events import Node
    from distlock.queue.joining import SessionView
    from distlock.queue.semaphore.limits import Limit

    from .events import Effect, Event

#: The queue's news for its caller, which is the semaphore's contender.
_OUTCOMES = frozenset({e.Grant, e.Lose, e.Refuse})
#: The events of the session that the queue hears of, too.
_OF_THE_SESSION = frozenset({e.Connected, e.Disconnected, e.Renewed})


class Queueing:
    """A semaphore's contender as far as it has no permits.

    :param limit: how many permits there are, as far as this process knows
    :param wanted: how many to take, all or none
    :param try_only: be `Busy` as soon as too few are free
    :param new_prefix: returns a prefix for a node's name that nobody else has
    """

    __slots__ = (
        "_effects",
        "_error",
        "_limit_watched",
        "_line_error",
        "_names_watched",
        "_unanswered",
        "ahead",
        "limit",
        "new_prefix",
        "nodes",
        "permits",
        "prefix",
        "queue",
        "seen",
        "session",
        "state",
        "try_only",
        "wanted",
    )
    #: By state and event: what applies it.
    _methods: ClassVar[dict[tuple[SemaphoreState, type], Callable[[Any, Any], None]]]

    def __init__(
        self,
        session: SessionView,
        limit: Limit,
        *,
        wanted: int = 1,
        try_only: bool = False,
        new_prefix: Callable[[], str] = znodes.protected_prefix,
    ) -> None:
        self.session = session
        self.limit = limit
        self.wanted = wanted
        self.try_only = try_only
        self.new_prefix = new_prefix
        self.state = SemaphoreState.NEW
        #: Our way through the queue.
        self.queue = self._new_queue()
        #: The prefix of our permits' nodes, and those nodes that are known to be there.
        self.prefix = ""
        self.nodes: list[Node] = []
        #: The permits, once granted: each a contender of its own.
        self.permits: list[Machine] = []
        #: How many were ahead at the last look; None until the queue or the permits were seen, and
        #: for one who tries only while it is in the queue.
        self.ahead: int | None = None
        #: Whether the queue or the permits have ever been seen.
        self.seen = False
        #: The creates of this go that are not answered yet, and the first error.
        self._unanswered = 0
        self._error: e.Error = None
        self._line_error: e.Error = None
        self._limit_watched = self._names_watched = False
        self._effects: list[Effect] = []

    def __init_subclass__(cls) -> None:
        cls._methods = methods_of(cls)

    def apply(self, event: Event) -> Sequence[Effect]:
        """Apply an event and return what is to be done, in this order."""
        effects = self._effects = []
        where, what = event if type(event) is At else (None, event)
        if where == LOCKS:
            self._in_queue(what)
        else:
            if type(what) in _OF_THE_SESSION and not self._keeps_turn(what):
                self._in_queue(what)
            self._happen(what)
        return effects

    @property
    def done(self) -> bool:
        """Whether nothing more will come of any event."""
        return self.state is SemaphoreState.LEFT and self.queue.state is State.LEFT

    def _happen(self, event: Any) -> None:
        method = self._methods.get((self.state, type(event)))
        if method is not None:
            method(self, event)

    def _do(self, *effects: Any) -> None:
        """Ask for something at the node of the permits."""
        self._effects.extend(At(LEASES, effect) for effect in effects)

    # --- in the queue ----------------------------------------------------------------------------

    @property
    def _our_turn(self) -> bool:
        """Whether we are first in the queue, in this session."""
        return self.queue.state is State.HOLDING and self.queue.standing

    def _keeps_turn(self, event: Any) -> bool:
        """Whether the queue is not to know of a connection, since it would check the deadline."""
        return type(event) is e.Connected and self.queue.state is State.HOLDING

    def _new_queue(self) -> Machine:
        return Machine(FAIR, self.session, LocalLine(), me=None, new_prefix=self.new_prefix)

    def _in_queue(self, event: Any) -> None:
        queue = self.queue
        for effect in queue.apply(event):
            if type(effect) in _OUTCOMES:
                self._happen(effect)
            else:
                self._effects.append(At(LOCKS, effect))
                if type(effect) is e.MakeLine:
                    self._make_line()
        if queue.ahead and queue is self.queue:
            self.seen = True
            if not self.try_only:
                self.ahead = queue.ahead

    def _come_to_queue(self, _: Any = None) -> None:
        """Enter the queue, and see in the same go what is written of the permits."""
        self.state = SemaphoreState.COUNTING
        self.ahead = None
        self._in_queue(e.Join())
        self._count()

    def _count(self, _: Any = None) -> None:
        self.state = SemaphoreState.COUNTING
        if self.queue.state is State.HOLDING and not self._our_turn:
            self._start_anew()
        elif self.session.connected:
            self._do(s.ReadLimit())

    def _counted(self, event: s.LimitRead) -> None:
        """Decide whether to go on; one who tries makes no nodes that could be too many.

        If permits are free, the contender in the queue takes a moment, and this one waits for it.
        """
        if event.error not in (None, e.Problem.MISSING):
            self._fail(event.error)
            return
        self._limit_read(event)
        if self._is_beyond_limit():
            return
        if self.try_only and event.taken + self.wanted > self.limit.now:
            self._be_busy(event.taken)
        elif self.queue.state is State.HOLDING:
            self._make()
        else:
            self.state = SemaphoreState.QUEUEING

    def _have_turn(self, _: e.Grant) -> None:
        if self.try_only:
            self._count()
        else:
            self._do(s.ReadLimit())  # somebody may have set another one
            self._make()

    def _start_anew(self, _: Any = None) -> None:
        """Come to the queue again: our node there has gone."""
        self._give_up_nodes()
        self._unwatch()
        self._in_queue(e.Leave())
        self.queue = self._new_queue()
        self._come_to_queue()

    # --- the node of the permits ------------------------------------------------------------------

    def _limit_read(self, event: s.LimitRead) -> None:
        if event.error is not None:
            self._limit_watched = False  # what has become of the permits, their list tells
        elif self.limit.read(event.data):
            self._do(s.WriteLimit(self.limit.announcement, event.version))

    def _make_line(self) -> None:
        self._do(e.MakeLine(), s.WriteLimit(self.limit.announcement, 0))

    def _line_made(self, event: e.LineMade) -> None:
        self._line_error = event.error

    def _is_beyond_limit(self) -> bool:
        """Refuse a caller that would wait for ever at the head, and everybody behind it."""
        beyond = self.wanted > self.limit.now
        if beyond:
            self._refused(e.Refuse(e.Why.BEYOND_LIMIT))
        return beyond

    def _be_busy(self, taken: int) -> None:
        self.state = SemaphoreState.BUSY
        self.seen = True
        self.ahead = taken
        self._effects.append(e.Busy())

    # --- refused ---------------------------------------------------------------------------------

    def _fail(self, error: e.Error) -> None:
        about = error if isinstance(error, BaseException) else None
        self._refused(e.Refuse(e.Why.ERROR, about))

    def _refused(self, refusal: e.Refuse) -> None:
        self.state = SemaphoreState.REFUSED
        self._effects.append(refusal)

    # --- with permits: see `machine` -------------------------------------------------------------

    def _make(self) -> None:
        raise NotImplementedError

    def _unwatch(self) -> None:
        raise NotImplementedError

    def _give_up_nodes(self) -> None:
        raise NotImplementedError
