"""Bugs of semaphores, each put into the machines: `explore` must find every one of them.

Those of a single contender are in `mutations`: a lost reply, a late create, a list from before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.queue import events as e
from distlock.queue.semaphore import Permit, Program, Turn
from distlock.queue.states import State
from tests.queue.semaphore_explore import Scope, faults
from tests.queue.semaphore_world import Bugs

if TYPE_CHECKING:
    from collections.abc import Sequence


class StandsInAnySession(Permit):
    """CURATOR-604: the list of the new session still shows the old one's nodes."""

    @property
    def standing(self) -> bool:
        return self.node is not None


class TurnOfAnySession(Turn):
    """As that one, in the queue."""

    @property
    def valid(self) -> bool:
        return self.state is State.HOLDING


class LostReplyMakesAnew(Permit):
    """CURATOR-335: the first node uses the limit up for as long as the session lives."""

    def _find(self, _: e.Connected) -> None:
        self._join_anew()


class RecoveryWithoutSync(Permit):
    """The server that is asked after a lost reply lags behind."""

    def _find(self, _: e.Connected) -> None:
        self._do(e.List())


class RecoveryWithSync(Permit):
    """A ``sync`` precedes the search after a lost reply, and a deposed leader answers it."""

    syncs = True


class NoDeleteAfterMaxHold(Permit):
    """A holder past its max_hold has lost its permit, and keeps the others out."""

    def _give_up(self, event: e.GiveUp) -> None:
        if event.reason == "max_hold":
            self._lose("max_hold")
        else:
            super()._give_up(event)


class FoundBrokenIsIgnored(Permit):
    """A holder finds that its node is gone, and holds on."""

    def apply(self, event: e.Event) -> Sequence[e.Effect]:
        return () if event == e.GiveUp("broken") else super().apply(event)


class LateCreateIsForgotten(Permit):
    """CURATOR-376, -462: the caller goes while its creates are under way."""

    def _leave_unanswered(self, event: e.Leave) -> None:
        self._leave(event)


class LimitIsNotWatched(Permit):
    """CURATOR-75: a raised limit wakes nobody."""

    def _watch_limit(self) -> None:
        pass


class WatchOutlivesItsPermits(Permit):
    """Found in review: nodes that are made anew fire the watch that their wait relies on."""

    def _start_anew(self) -> None:
        self._give_up_node()
        self._join_anew()


class WatchIsForgotten(Permit):
    """Watches stay behind for every wait that timed out."""

    def _unwait(self) -> None:
        self._watching = frozenset()


class EachTakesAPart(Program[Any]):
    """Without the queue two who want several permits wait for each other."""

    def advance(self) -> None:
        if self.queue.machine.node and not (self.left or self.granted):
            self._take()
        else:
            super().advance()


class HolderStaysInTheQueue(Program[Any]):
    """The others wait behind it, though permits are free."""

    def _take(self) -> None:
        self.queue, queue = _Stays(), self.queue
        super()._take()
        self.queue = queue


class _Stays:
    def leave(self) -> None:
        pass


class BrokenTurnIsNotMissed(Turn):
    """The queue lets the next one in, and both wait for the same permit."""

    def _watch_own(self) -> None:
        pass


class LostTurnIsKept(Program[Any]):
    """One whose place is gone waits for ever."""

    def advance(self) -> None:
        if self.queue.machine.state is not State.LOST:
            super().advance()


class LostPermitIsKept(Program[Any]):
    """One of several permits was lost while the others were awaited."""

    def _take(self) -> None:
        if not self.permits or all(p.machine.valid for p in self.permits):
            super()._take()


class LostPermitIsGranted(Program[Any]):
    """One of several permits was lost while the others were awaited, and nobody looked."""

    def _take(self) -> None:
        if self.permits and all(p.machine.state is State.HOLDING for p in self.permits):
            self.granted = True
            self.queue.leave()
            self.settle()
        elif not self.permits:
            super()._take()


class LimitOfTheFirstLook(Permit):
    """A limit that is set while one waits is not read."""

    def _limit_read(self, event: e.LimitRead) -> None:
        if not self.seen:
            super()._limit_read(event)


class LimitAfterTheList(Permit):
    """A changed limit is watched after the list that is to be judged by it."""

    def _own_changed(self, event: e.Changed) -> None:
        if event.name == e.LIMIT:
            self._watching -= {event.name}
            self._look()
            self._watch_limit()
        else:
            super()._own_changed(event)


class KeptLimitIsNotRead(Permit):
    """Who comes first after an idle time goes by the code, not by the limit that was set."""

    def _kept_read(self, event: e.KeptRead) -> None:
        super()._kept_read(e.KeptRead())


class LimitOfTheMissingNode(Permit):
    """Somebody else has made the permits' node since our turn came, and knows the limit."""

    def _rereads(self) -> bool:
        return False


class Mutation(NamedTuple):
    """A bug, and where it shows."""

    bugs: Bugs
    scope: Scope
    #: Part of what `explore` says.
    harm: str

    def __str__(self) -> str:
        turn, permit, program = (cls.__name__ for cls in self.bugs)
        return next(
            name for name in (permit, program, turn) if name not in ("Permit", "Program", "Turn")
        )


def in_turn(bug: type[Turn]) -> Bugs:
    return Bugs(turn=bug)


def in_permit(bug: type[Permit]) -> Bugs:
    return Bugs(permit=bug)


def in_program(bug: Any) -> Bugs:
    return Bugs(program=bug)


SLEEPS = "nobody wakes it"
FORGOTTEN = "has forgotten its node"
TOGETHER = "hold at the same time"
FREE = "though permits are free"


def alone(**more: int) -> Scope:
    """Return the scope of one contender."""
    return Scope(1, faults(**more), (1,), (0,))


#: Somebody wants two permits, and may lose the first before it has the second.
BOTH = Scope(2, faults(lapses=1, cuts=1), (2,), (0,))
MUTATIONS = [
    Mutation(
        Bugs(TurnOfAnySession, StandsInAnySession),
        alone(lapses=1, expiries=1),
        "of an earlier session",
    ),
    Mutation(in_permit(LostReplyMakesAnew), alone(cuts=1), FORGOTTEN),
    Mutation(in_permit(RecoveryWithoutSync), alone(cuts=1), FORGOTTEN),
    Mutation(in_permit(RecoveryWithSync), alone(cuts=1, deposed=1), FORGOTTEN),
    Mutation(in_permit(NoDeleteAfterMaxHold), Scope(1, faults(overstays=1)), FREE),
    Mutation(in_permit(FoundBrokenIsIgnored), alone(breaks=1, looks=1), "goes on holding"),
    Mutation(in_permit(LateCreateIsForgotten), alone(leaves=1), FORGOTTEN),
    Mutation(in_permit(LimitIsNotWatched), Scope(1), SLEEPS),
    Mutation(in_permit(WatchOutlivesItsPermits), Scope(1, faults(breaks=1)), SLEEPS),
    Mutation(in_permit(WatchIsForgotten), Scope(1), "its watch is still there"),
    Mutation(in_program(LostPermitIsGranted), BOTH, "lost already"),
    Mutation(in_program(LostPermitIsKept), BOTH, SLEEPS),
    Mutation(in_program(LostTurnIsKept), alone(lapses=1, expiries=1, cuts=1), SLEEPS),
    Mutation(in_permit(LimitAfterTheList), Scope(1, faults(limits=3)), FREE),
    Mutation(in_program(EachTakesAPart), Scope(2, wanted=(2, 2)), FREE),
    Mutation(in_program(HolderStaysInTheQueue), Scope(2), FREE),
    Mutation(in_turn(BrokenTurnIsNotMissed), Scope(1, faults(breaks=1, beats=2)), "does not hear"),
    Mutation(in_permit(LimitOfTheFirstLook), Scope(1, faults(limits=1)), FREE),
    Mutation(in_permit(KeptLimitIsNotRead), Scope(2, line=False, kept=1), TOGETHER),
    Mutation(in_permit(LimitOfTheMissingNode), Scope(2, line=False, kept=1), TOGETHER),
]
