"""A semaphore's contender as a state machine: events in, effects out, and no I/O.

`SemaphoreMachine.apply` takes an event and returns the effects. `states` has the table of what
happens in which state, `events` the words, and `distlock.queue.machine` says what the driver
guarantees.

``<path>/locks`` is a fair queue, with a machine of its own. The first contender there makes its
nodes in ``<path>/leases``, has its permits as soon as that has no more nodes than the limit, and
leaves the queue. So only one contender waits for permits, without a herd; and one that wants
several waits there for all of them: no two can have a part each and wait for the rest.

How it is safe:

- The queue is for fairness only. A contender beyond the limit, counted with all others, has
  nothing. So our turn lasts as long as the session, and does not end with the session deadline.
- The creates and a list are one go, and the list's answer is the last. Nothing is decided before
  it, so the answers of one go never mix with those of another.
- Nodes that may be there, or may be gone, are deleted and made anew: the queue's node keeps our
  turn. A node of an earlier session never counts (CURATOR-604).
- Each answer that has the limit comes before a list, which judges by it.

Source: Curator's ``InterProcessSemaphoreV2``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from distlock.keys import znodes
from distlock.queue import events as e
from distlock.queue.local_line import LocalLine
from distlock.queue.machine import Machine
from distlock.queue.policies import FAIR, Policy
from distlock.queue.states import State
from distlock.queue.table import methods_of

from . import events as s
from .events import LEASES, LOCKS, At
from .states import RULES, SemaphoreState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distlock.queue.events import Node
    from distlock.queue.machine import SessionView
    from distlock.queue.semaphore.limits import Limit

    from .events import Effect, Event

#: The queue's news for its caller, which is the semaphore's contender.
_OUTCOMES = frozenset({e.Grant, e.Lose, e.Refuse})
#: The events of the session that the queue hears of, too.
_OF_THE_SESSION = frozenset({e.Connected, e.Disconnected, e.Renewed})


class SemaphoreMachine:
    """One caller's way through the queue and to its permits.

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
    _methods: ClassVar[list[dict[type, Callable[[Any, Any], None]]]]

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
        cls._methods = methods_of(cls, SemaphoreState, RULES)

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
        method = self._methods[self.state].get(type(event))
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

    # --- making the permits ----------------------------------------------------------------------

    def _make(self) -> None:
        """Make the nodes of our permits and list all of them in one go, while it is our turn."""
        if not self._our_turn:
            self._start_anew()
            return
        self._give_up_nodes()
        self._unwatch()
        self.state = SemaphoreState.MAKING
        self.prefix = self.new_prefix()
        self._unanswered = self.wanted
        self._error = None
        self._do(*[e.Create(self.prefix + znodes.LEASE)] * self.wanted, e.List())

    def _created(self, event: e.Created) -> None:
        self._unanswered -= 1
        if event.node is not None:
            self.nodes.append(event.node)
        else:
            self._error = self._error or event.error

    def _made(self, event: e.Listed) -> None:
        if self._unanswered:
            return  # a list from before
        if self._error is None:
            self._listed(event)
        elif self._error is not e.Problem.MISSING:
            self._fail(self._error)
        elif self._line_error is not None:
            self._fail(self._line_error)
        else:
            self._make_line()
            self._make()

    # --- after a lost reply ----------------------------------------------------------------------

    def _lose_reply(self, _: e.Disconnected) -> None:
        self.state = SemaphoreState.FINDING
        self.nodes = []  # they are found with the others

    def _find(self, _: e.Connected) -> None:
        self._do(e.List(sync=True))

    def _found(self, event: e.Listed) -> None:
        self._delete_ours(event.names)
        self._make()

    def _delete_ours(self, names: Sequence[str]) -> None:
        ours = [name for name in names if name.startswith(self.prefix)]
        self._do(*(e.Delete(name, self.session.id) for name in ours))

    # --- among the permits -----------------------------------------------------------------------

    def _look(self, _: Any = None) -> None:
        """List the permits, or start anew where our place in the queue went with its session."""
        self.state = SemaphoreState.LOOKING
        if not self._our_turn:
            self._start_anew()
        elif self.session.connected:
            self._do(e.List())

    def _listed(self, event: e.Listed) -> None:
        if event.error is None:
            self._see(event.names)
        elif event.error is e.Problem.MISSING:
            self._make()
        else:
            self._fail(event.error)

    def _see(self, names: Sequence[str]) -> None:
        """Decide: within the limit, or too many."""
        self.seen = True
        if self._is_beyond_limit():
            return
        session_id = self.session.id
        if not all(node.session_id == session_id and node.name in names for node in self.nodes):
            self._make()  # broken by an operator (CURATOR-211)
        elif len(names) > self.limit.now:
            self._wait(len(names))
        elif self.session.deadline.running:
            self._grant()
        else:
            self.state = SemaphoreState.PROVING
            self._do(e.Prove())

    def _wait(self, taken: int) -> None:
        """Look again when there are other permits, or another limit."""
        if self.try_only:
            self._be_busy(taken)
        elif not self._our_turn:
            self._start_anew()
        else:
            self.state = SemaphoreState.WAITING
            self.ahead = taken - self.limit.now
            self._watch_limit()
            if not self._names_watched:
                self._names_watched = True
                self._do(s.WatchPermits(names=True))

    def _grant(self) -> None:
        policy = Policy(znodes.LEASE, shared=self.limit.now > 1)
        for node in self.nodes:
            permit = Machine(policy, self.session, self.queue.local, me=None)
            permit.node, permit.epoch = node, self.session.deadline.epoch
            permit.state = State.HOLDING
            self.permits.append(permit)
        self.nodes = []
        self.state = SemaphoreState.HOLDING
        self._unwatch()
        self._in_queue(e.Leave())
        self._effects.append(e.Grant())

    # --- watches ---------------------------------------------------------------------------------

    def _watch_limit(self) -> None:
        if not self._limit_watched and self.session.connected:
            self._limit_watched = True
            self._do(s.WatchPermits(names=False))

    def _changed(self, event: s.PermitsChanged) -> None:
        if event.names:
            self._names_watched = False
        else:
            self._limit_watched = False
            self._watch_limit()
        self._look()  # after it, so that the permits are judged by the new limit

    def _unwatch(self) -> None:
        if self._limit_watched:
            self._do(s.UnwatchPermits(names=False))
        if self._names_watched:
            self._do(s.UnwatchPermits(names=True))
        self._limit_watched = self._names_watched = False

    def _disconnected(self, _: e.Disconnected) -> None:
        self.state = SemaphoreState.LOOKING
        self._limit_watched = self._names_watched = False

    # --- leaving ---------------------------------------------------------------------------------

    def _leave(self, event: e.Leave) -> None:
        self.state = SemaphoreState.LEFT
        self._give_up_nodes()  # before the queue, so that the next one finds them gone
        self._unwatch()
        self._in_queue(event)

    def _leave_while_making(self, event: e.Leave) -> None:
        self._leave(event)
        if self._unanswered:
            self.state = SemaphoreState.LEAVING

    def _created_in_vain(self, event: e.Created) -> None:
        self._created(event)
        self._give_up_nodes()
        if not self._unanswered:
            self.state = SemaphoreState.LEFT

    def _search(self, event: e.Leave | e.Disconnected) -> None:
        self.state = SemaphoreState.SEARCHING
        if type(event) is e.Leave:
            self._in_queue(event)

    def _found_in_vain(self, event: e.Listed) -> None:
        self.state = SemaphoreState.LEFT
        self._delete_ours(event.names)

    def _give_up_nodes(self) -> None:
        nodes, self.nodes = self.nodes, []
        self._do(*(e.Delete(node.name, node.session_id) for node in nodes))

    # --- refused ---------------------------------------------------------------------------------

    def _fail(self, error: e.Error) -> None:
        about = error if isinstance(error, BaseException) else None
        self._refused(e.Refuse(e.Why.ERROR, about))

    def _refused(self, refusal: e.Refuse) -> None:
        self.state = SemaphoreState.REFUSED
        self._effects.append(refusal)


SemaphoreMachine.__init_subclass__()  # as each subclass, which has methods of its own, in the tests
