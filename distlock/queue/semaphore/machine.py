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

from typing import TYPE_CHECKING, Any

from distlock.keys import znodes
from distlock.queue import events as e
from distlock.queue.machine import Machine
from distlock.queue.policies import Policy
from distlock.queue.states import State

from . import events as s
from .queueing import Queueing
from .states import SemaphoreState

if TYPE_CHECKING:
    from collections.abc import Sequence


class SemaphoreMachine(Queueing):
    """One caller's way through the queue and to its permits."""

    __slots__ = ()

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
                self._do(s.WatchNames())

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
            self._do(s.WatchLimit())

    def _limit_changed(self, _: s.LimitChanged) -> None:
        self._limit_watched = False
        self._watch_limit()
        self._look()  # after it, so that the permits are judged by the new limit

    def _names_changed(self, _: s.NamesChanged) -> None:
        self._names_watched = False
        self._look()

    def _unwatch(self) -> None:
        if self._limit_watched:
            self._do(s.UnwatchLimit())
        if self._names_watched:
            self._do(s.UnwatchNames())
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
