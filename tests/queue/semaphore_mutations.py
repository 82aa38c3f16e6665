"""Bugs of semaphores, each put into the machine: `explore` must find every one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.queue import events as e
from distlock.queue.semaphore.machine import SemaphoreMachine
from distlock.queue.semaphore.states import SemaphoreState
from distlock.queue.states import State
from tests.queue.semaphore_explore import Scope, faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlock.queue.semaphore import events as s


class NodesOfAnEarlierSessionCount(SemaphoreMachine):
    """CURATOR-604: the list of the new session still shows the old one's nodes."""

    @property
    def _our_turn(self) -> bool:
        return self.queue.state is State.HOLDING

    def _see(self, names: Sequence[str]) -> None:
        self.nodes = [node._replace(session_id=self.session.id) for node in self.nodes]
        super()._see(names)


class LostReplyMakesAnew(SemaphoreMachine):
    """CURATOR-335: the first nodes use the limit up for as long as the session lives."""

    def _find(self, event: e.Connected) -> None:
        if self.state is SemaphoreState.FINDING:
            self._make()
        else:
            super()._find(event)


class RecoveryWithoutSync(SemaphoreMachine):
    """The server that is asked after a lost reply lags behind."""

    def _find(self, _: e.Connected) -> None:
        self._do(e.List())


class LateCreateIsForgotten(SemaphoreMachine):
    """CURATOR-376, -462: the caller goes while its creates are under way."""

    def _leave_while_making(self, event: e.Leave) -> None:
        self._leave(event)


class LostReplyOfOneWhoLeftIsForgotten(SemaphoreMachine):
    """The caller leaves, and then the reply to its create is lost."""

    def _search(self, event: e.Leave | e.Disconnected) -> None:
        super()._search(event)
        if type(event) is e.Disconnected:
            self.state = SemaphoreState.LEFT


class LimitIsNotWatched(SemaphoreMachine):
    """CURATOR-75: a raised limit wakes nobody."""

    def _watch_limit(self) -> None:
        pass


class WatchOutlivesItsPermits(SemaphoreMachine):
    """Found in review: nodes that are made anew fire the watch that their wait relies on."""

    def _unwatch(self) -> None:
        if self.state in (SemaphoreState.HOLDING, SemaphoreState.LEFT):
            super()._unwatch()


class WatchIsForgotten(SemaphoreMachine):
    """Watches stay behind for every wait that timed out."""

    def _unwatch(self) -> None:
        self._limit_watched = self._names_watched = False


class GrantWithoutProof(SemaphoreMachine):
    """Granted by a list, though the session may have expired."""

    def _see(self, names: Sequence[str]) -> None:
        if len(names) <= self.limit.now:
            self._grant()
        else:
            super()._see(names)


class EachTakesAPart(SemaphoreMachine):
    """Without the queue two who want several permits wait for each other."""

    @property
    def _our_turn(self) -> bool:
        return True

    def _counted(self, event: s.LimitRead) -> None:
        super()._counted(event)
        if self.state is SemaphoreState.QUEUEING:
            self._make()


class HolderStaysInTheQueue(SemaphoreMachine):
    """The others wait behind it, though permits are free."""

    def _grant(self) -> None:
        queue, self.queue = self.queue, self._new_queue()
        super()._grant()
        self.queue = queue


class BrokenTurnIsNotMissed(SemaphoreMachine):
    """The queue lets the next one in, and both wait for the same permit."""

    def _in_queue(self, event: Any) -> None:
        if type(event) is not e.Renewed:
            super()._in_queue(event)


class EarlierListCounts(SemaphoreMachine):
    """A list from before the creates is taken for the one after them."""

    def _made(self, event: e.Listed) -> None:
        self._unanswered = 0
        super()._made(event)


class LimitOfTheFirstLook(SemaphoreMachine):
    """A limit that is set while one waits in the queue is not read."""

    def _limit_read(self, event: s.LimitRead) -> None:
        if self.state is SemaphoreState.COUNTING:
            super()._limit_read(event)


class Mutation(NamedTuple):
    """A bug, and where it shows."""

    machine: type[SemaphoreMachine]
    scope: Scope
    #: Part of what `explore` says.
    harm: str

    def __str__(self) -> str:
        return self.machine.__name__


SLEEPS = "nobody wakes it"
FORGOTTEN = "has forgotten its node"
FREE = "though permits are free"


def alone(**more: int) -> Scope:
    """Return the scope of one contender."""
    return Scope(1, faults(**more), (1,), (0,))


MUTATIONS = [
    Mutation(NodesOfAnEarlierSessionCount, alone(lapses=1, expiries=1), "of an earlier session"),
    Mutation(LostReplyMakesAnew, alone(cuts=1), FORGOTTEN),
    Mutation(RecoveryWithoutSync, alone(cuts=1), FORGOTTEN),
    Mutation(LateCreateIsForgotten, alone(leaves=1), FORGOTTEN),
    Mutation(LostReplyOfOneWhoLeftIsForgotten, alone(leaves=1, cuts=1), FORGOTTEN),
    Mutation(LimitIsNotWatched, Scope(1), SLEEPS),
    Mutation(WatchOutlivesItsPermits, Scope(1, faults(breaks=1)), SLEEPS),
    Mutation(WatchIsForgotten, Scope(1), "its watch is still there"),
    Mutation(GrantWithoutProof, alone(lapses=1), "lost already"),
    Mutation(EachTakesAPart, Scope(2, wanted=(2, 2)), FREE),
    Mutation(HolderStaysInTheQueue, Scope(2), FREE),
    Mutation(BrokenTurnIsNotMissed, Scope(1, faults(breaks=1, beats=2)), "does not hear"),
    Mutation(EarlierListCounts, Scope(1, faults(limits=1, breaks=1)), "lost already"),
    Mutation(LimitOfTheFirstLook, Scope(1, faults(limits=1)), FREE),
]
