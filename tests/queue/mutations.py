"""Bugs that Curator, kazoo or distlock once had, each put back into the machine.

A mutation is a class of contender in which one thing is wrong, and a scope in which `explore` must
find that out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.keys import znodes
from distlock.keys.limits import MAX_INT
from distlock.queue import events as e
from distlock.queue import policies
from distlock.queue.machine import Machine
from distlock.queue.states import State
from tests.queue.explore import DOWNGRADED, MUTEXES, Scope
from tests.queue.world import Faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlock.queue.events import Effect, Event
    from tests.queue.world import World


class NodeOfAnEarlierSessionCounts(Machine):
    """CURATOR-604: the list of the new session still shows the old one's node."""

    @property
    def standing(self) -> bool:
        return self.node is not None


class FoundNodeIsTaken(Machine):
    """CURATOR-498: the node that is found after a lost reply belongs to the dying session."""

    def _identified(self, event: e.NodeRead) -> None:
        if event.node is not None:
            event = event._replace(node=event.node._replace(session_id=self.session.id))
        super()._identified(event)


class LateCreateIsForgotten(Machine):
    """CURATOR-45, -79, -205: the create is done on the server, and its caller has gone."""

    def _leave_unanswered(self, _: e.Leave) -> None:
        self.state = State.LEFT


class SweptOnce(e.Sweep):
    repeated = False


class SweepIsNotRepeated(Machine):
    """An orphan node: the caller leaves, and the reply to its create is lost."""

    def _leave_unanswered(self, _: e.Leave) -> None:
        self.state = State.LEFT
        self._do(SweptOnce(self.prefix))


class SweptWithoutSync(e.Sweep):
    synced = False


class SweepWithoutSync(Machine):
    """The server that is asked for the node of one who has left lags behind."""

    def _leave_unanswered(self, _: e.Leave) -> None:
        self.state = State.LEFT
        self._do(SweptWithoutSync(self.prefix))


class LostReplyJoinsAnew(Machine):
    """kazoo's recipes: a create is sent again after a lost reply."""

    def _find(self, event: e.Connected) -> None:
        if self.state is State.FINDING:
            self._join_anew()
        else:
            super()._find(event)


class RecoveryWithoutSync(Machine):
    """Curator and kazoo: the server that is asked after a lost reply lags behind."""

    def _find(self, _: e.Connected) -> None:
        self._do(e.List())


class RecoveryWithSync(Machine):
    """ZOOKEEPER-1675: the leader that is asked after a lost reply is deposed, and answers."""

    syncs = True


class NoLookBetweenEventAndWait(Machine):
    """CURATOR-527, -641: the one ahead has gone before the watch on it is set."""

    def _ahead_watched(self, event: e.Watched) -> None:
        if event.error is None:
            super()._ahead_watched(event)


class PredecessorGoneMeansOurTurn(Machine):
    """The one ahead has only given up waiting, in the middle of the line."""

    def _ahead_changed(self, event: e.Changed) -> None:
        if event.name == self._watched and event.deleted:
            self._have_turn()
        else:
            super()._ahead_changed(event)


class WatchIsForgotten(Machine):
    """One watch stays behind for every wait that timed out."""

    def _unwait(self) -> None:
        if self.state in (State.BEHIND, State.ASIDE):
            super()._unwait()


class SecondWatchIsForgotten(Machine):
    """On a long link: only the watch on the one ahead is removed."""

    def _unwait(self) -> None:
        self._watching &= {self._watched}
        super()._unwait()


class SecondGoneMeansOnlyOneAhead(Machine):
    """The one ahead of the one ahead has only given up, in the middle of a longer line."""

    def _ahead_changed(self, event: e.Changed) -> None:
        if event.deleted and event.name in self._watching and event.name != self._watched:
            self._only = True
        else:
            super()._ahead_changed(event)


class GoneDuringTheListMeansOurTurn(Machine):
    """The middle one gives up while the list is under way."""

    def _own_changed(self, event: e.Changed) -> None:
        if self.state is State.LOOKING and event.deleted and event.name == self._watched:
            self._have_turn()
        else:
            super()._own_changed(event)


class FiredWatchStands(Machine):
    """A watch fires while the list is under way, and is taken for one that still stands."""

    def _own_changed(self, event: e.Changed) -> None:
        if self.node is not None and event.name == self.node.name:
            super()._own_changed(event)


class WatchesOutliveTheConnection(Machine):
    """Watches of the connection before are taken for some of this one."""

    def _disconnected(self, event: e.Disconnected) -> None:
        before = self._watching
        super()._disconnected(event)
        self._watching = before


class StrangersAreNotAhead(Machine):
    """The one ahead is the first mutex, and behind a reader."""

    def _wait_behind(self, line: list[Any], own: int, blocking: Any) -> None:
        super()._wait_behind(line, own, blocking)
        self._only = all(other.kind != znodes.LOCK for other in line[: own - 1])


class WatchByExists(Machine):
    """CURATOR-107: a watch by exists stays on a node that is gone."""

    def apply(self, event: Event) -> Sequence[Effect]:
        return [
            WatchWithExists(effect.name) if isinstance(effect, e.Watch) else effect
            for effect in super().apply(event)
        ]


class WatchWithExists(NamedTuple):
    name: str


class NoDeleteAfterMaxHold(Machine):
    """A holder past its max_hold has lost the lock, and keeps all others out."""

    def _give_up(self, event: e.GiveUp) -> None:
        if event.reason == "max_hold":
            self._lose("max_hold")
        else:
            super()._give_up(event)


class FoundBrokenIsIgnored(Machine):
    """A holder finds that its node is gone, and its neighbour waits for a heartbeat to say so."""

    def apply(self, event: e.Event) -> Sequence[e.Effect]:
        return () if event == e.GiveUp("broken") else super().apply(event)


class NoListAfterProof(Machine):
    """The node was in the list, and is gone when the session is proven at last."""

    def apply(self, event: Event) -> Sequence[Effect]:
        if self.state is State.PROVING and type(event) is e.Proved:
            self.state = State.HOLDING
            self.epoch = self.session.deadline.epoch
            return [e.GRANT]
        return super().apply(event)


class LostHolderHandsOver(Machine):
    """The lock is lost, and with it the right to say whose it is."""

    def _lose(self, reason: e.Reason) -> None:
        self.state = State.LOST
        self._do(e.Lose(reason))
        if self.node is not None:
            self._part(self.node, self.epoch)


class HandOverWithoutSessionCheck(Machine):
    """A holder whose session may have ended hands the lock to its neighbour."""

    def _leave(self, event: e.Leave) -> None:
        epoch = self.epoch if self.state is State.HOLDING else None
        self._unwait()
        self.state = State.LEFT
        self._give_up_node(epoch)

    def _neighbour_left(self, event: e.NeighbourLeft) -> None:
        if event.epoch is not None:
            self._grant(self.session.deadline.epoch)
        else:
            super()._neighbour_left(event)


class OfferIsNotTakenBack(Machine):
    """A contender goes on alone, and its neighbour hands it the lock all the same."""

    offers_stay = True


class HandOverIsNotNoted(Machine):
    """The caller has had the lock from its neighbour, and the contender does not know."""

    def _handed_over(self, event: e.HandedOver) -> None:
        pass


class NumberWithoutAgeOfLine(Machine):
    """The number before ours is of a neighbour in a line that was removed since."""

    def _line_read(self, event: e.LineRead) -> None:
        super()._line_read(event._replace(token=0))


class AnyNumberIsOfThisLine(Machine):
    """The same, and the line is not read at all."""

    def _find_neighbour(self, node: e.Node) -> None:
        local = self.local.at(node.number - 1)
        if local is None:
            super()._find_neighbour(node)
        else:
            self._stand_behind(node, local)


class DistanceOfTransactions(Machine):
    """distlock once: a line begun anew has a transaction for each number. One is enough."""

    def _find_neighbour(self, node: e.Node) -> None:
        local = self.local.at(node.number - 1)
        if local is not None and 0 < node.token - local.token <= node.number:
            self._stand_behind(node, local)
        else:
            super()._find_neighbour(node)


class OneFollowerSupersedesAnother(Machine):
    """Found by `explore`: one whose node is gone follows the one that somebody else follows."""

    def _line_read(self, event: e.LineRead) -> None:
        assert self.node is not None
        local = self.local.at(self.node.number - 1)
        if local is not None:
            local.follower = None
        super()._line_read(event)


class LeaveForgetsTheNeighbour(Machine):
    """A waiter that gives up tells nobody."""

    def _part(self, node: e.Node, epoch: int | None) -> None:
        if epoch is not None:
            super()._part(node, epoch)
        else:
            self.local.leave(node)


class GrantWithoutProof(Machine):
    """Granted by a list, though the session may have expired."""

    def _have_turn(self) -> None:
        self._grant(self.session.deadline.epoch)


class LapseIsHealed(Machine):
    """CURATOR-206: a session deadline that has passed is forgotten with the next heartbeat."""

    @property
    def valid(self) -> bool:
        return self.state is State.HOLDING and self.session.deadline.running and self.standing

    def _continues(self, epoch: int) -> bool:
        return self.session.deadline.running and self.standing


class OwnNodeIsNotMissed(Machine):
    """CURATOR-211, -307: a node that an operator has deleted is waited with for ever."""

    def _own_gone(self) -> None:
        pass


class OwnNodeIsNotWatched(Machine):
    """A waiter that lists nothing does not hear that an operator has deleted its node."""

    def _watch_own(self) -> None:
        self._own_watched = True


class LineIsMadeOnce(Machine):
    """CURATOR-173, -180: the line's own node is removed between two steps, and not made again."""

    def _created(self, event: e.Created) -> None:
        if event.error is e.Problem.MISSING and self.prefix[4] != "1":
            self._fail(event.error)
        else:
            super()._created(event)


class NeighboursOutliveTheConnection(Machine):
    """A neighbour that was known before a cut is waited for after it."""

    def _disconnected(self, event: e.Disconnected) -> None:
        if self.state is not State.BEHIND:
            super()._disconnected(event)


class DowngradedAtTheEnd(Machine):
    """CURATOR-621: the reader gets a number of its own, and a queued writer comes first."""

    def apply(self, event: e.Event) -> Sequence[Effect]:
        effects = super().apply(event)
        create = e.Create(self.prefix + self.policy.kind)
        return [create if isinstance(x, e.Create) else x for x in effects]


class WornNumbersCount(Machine):
    """ZOOKEEPER-3249: at the end of its numbers a line gives the last one to each."""

    def _step_aside(self, line: list[Any], own: int) -> None:
        blocking = self.policy.whom(line, own) if self._worn else None
        if not self._worn:
            super()._step_aside(line, own)
        elif blocking is None:
            self._have_turn()
        else:
            self.ahead = own
            self._wait_behind(line, own, blocking)


class RequestIsMissedInACut(Machine):
    """Somebody is asked to leave while it has no connection."""

    def _connected(self, _: e.Connected) -> None:
        self._look()


class ReleasedNodeIsForgotten(Machine):
    """CURATOR-678: the release drops the node, and the delete is never sent."""

    def _give_up_node(self, epoch: int | None = None) -> None:
        super()._give_up_node(epoch)
        self._effects[:] = [x for x in self._effects if not isinstance(x, e.Delete)]


def a_writer_directly_ahead(line: list[znodes.NodeName], own: int) -> znodes.NodeName | None:
    """Let a reader in that is behind a reader, though that one waits for a writer."""
    ahead = policies.predecessor(line, own)
    return ahead if ahead is not None and ahead.kind != znodes.READ else None


class Mutation(NamedTuple):
    """A bug, and where it shows."""

    machine: type[Machine]
    scope: Scope
    #: Part of what `explore` says.
    harm: str
    #: Wrong policies, where the bug is in these.
    policies: Sequence[policies.Policy] = ()
    #: Whether it takes long to find.
    deep: bool = False

    def __str__(self) -> str:
        return self.machine.__name__ if not self.policies else self.policies[-1].whom.__name__

    def beginning(self) -> World:
        """Return the first world with the bug; `scope` has one without it."""
        kinds = self.policies or self.scope.policies
        return replace(self.scope, policies=kinds).beginning(self.machine)


def scope(count: int = 2, *, homes: tuple[int, ...] = (0, 1), **options: Any) -> Scope:
    """Return a small scope: so many mutexes, and as many faults as are given."""
    line, far = options.pop("line", True), options.pop("far", False)
    faults = {"leaves": 0, "releases": 0, **options}
    return Scope((policies.MUTEX,) * count, Faults(**faults), homes, line, far=far)


TOGETHER = (0, 0)
LONG: dict[str, Any] = {"homes": (0, 1, 2), "far": True}
LONGER: dict[str, Any] = {"homes": (0, 1, 2, 3), "far": True}
TWO_HOLD = "hold at the same time"
SLEEPS = "nobody wakes it"
FORGOTTEN = "has forgotten its node"
GHOST = "is granted on a node of an earlier session"
TOKENS = "is granted after"
IN_VAIN = "granted what is lost already"
ALL_WAIT = "everybody waits, and nobody holds"
UNAWARE = "does not hear that its node is broken"
DEAF = "does not hear that it is asked to leave"
HASTY = policies.Policy(znodes.READ, a_writer_directly_ahead, shared=True)
READERS = (policies.WRITER, policies.READER, policies.READER)

RENEWED = scope(3, homes=(0, 0, 1), renewals=1)
DOWNGRADES = Scope((policies.WRITER, DOWNGRADED, policies.WRITER), Faults(leaves=0, releases=0))

MUTATIONS = [
    Mutation(NodeOfAnEarlierSessionCounts, scope(1, homes=(0,), lapses=1, expiries=1), GHOST),
    Mutation(FoundNodeIsTaken, scope(1, homes=(0,), cuts=1, lapses=1, expiries=1), GHOST),
    Mutation(LateCreateIsForgotten, scope(leaves=1), FORGOTTEN),
    Mutation(LateCreateIsForgotten, scope(interrupts=1), FORGOTTEN),
    Mutation(SweepIsNotRepeated, scope(cuts=1, leaves=1), FORGOTTEN),
    Mutation(SweepWithoutSync, scope(cuts=1, leaves=1), FORGOTTEN),
    Mutation(LostReplyJoinsAnew, scope(cuts=1), FORGOTTEN),
    Mutation(RecoveryWithoutSync, scope(cuts=1), FORGOTTEN),
    Mutation(RecoveryWithSync, scope(cuts=1, deposed=1), FORGOTTEN),
    Mutation(NoDeleteAfterMaxHold, scope(overstays=1), ALL_WAIT),
    Mutation(FoundBrokenIsIgnored, scope(breaks=1, looks=1), "goes on holding"),
    Mutation(NoListAfterProof, scope(1, homes=(0,), lapses=1, breaks=1), "a node that is gone"),
    Mutation(LostHolderHandsOver, scope(homes=TOGETHER, overstays=1), "hands over what it has"),
    Mutation(NoLookBetweenEventAndWait, scope(), SLEEPS),
    Mutation(PredecessorGoneMeansOurTurn, scope(3, homes=(0, 1, 2), leaves=1), TWO_HOLD),
    Mutation(WatchIsForgotten, scope(leaves=1), "its watch is still there"),
    Mutation(SecondWatchIsForgotten, scope(3, **LONG, leaves=1), "its watch is still there"),
    Mutation(SecondGoneMeansOnlyOneAhead, scope(4, **LONGER, breaks=2), TWO_HOLD, deep=True),
    Mutation(GoneDuringTheListMeansOurTurn, scope(3, **LONG, touches=1, leaves=1), TWO_HOLD),
    Mutation(FiredWatchStands, scope(3, **LONG, touches=1, leaves=1), SLEEPS),
    Mutation(WatchesOutliveTheConnection, scope(3, **LONG, cuts=1), SLEEPS),
    Mutation(
        StrangersAreNotAhead,
        Scope((policies.READER, *MUTEXES[1:]), Faults(leaves=1, releases=0), (0, 1, 2), far=True),
        TWO_HOLD,
    ),
    Mutation(WatchByExists, scope(), "a watch is still there"),
    Mutation(HandOverWithoutSessionCheck, scope(3, homes=(0, 0, 1), lapses=1, expiries=1), IN_VAIN),
    Mutation(OfferIsNotTakenBack, scope(homes=TOGETHER, releases=1, cuts=1), TOKENS),
    Mutation(HandOverIsNotNoted, scope(homes=TOGETHER, releases=1), SLEEPS),
    Mutation(NumberWithoutAgeOfLine, scope(3, homes=(0, 0, 1), removals=1), TOKENS),
    Mutation(AnyNumberIsOfThisLine, scope(3, homes=(0, 0, 1), removals=1), TOKENS),
    Mutation(DistanceOfTransactions, replace(RENEWED, begins_at=2), TOKENS),
    Mutation(OneFollowerSupersedesAnother, scope(3, homes=(0, 0, 0), breaks=1, beats=1), SLEEPS),
    Mutation(LeaveForgetsTheNeighbour, scope(3, homes=(0, 0, 0), leaves=1), SLEEPS),
    Mutation(GrantWithoutProof, scope(lapses=1), IN_VAIN),
    Mutation(LapseIsHealed, scope(lapses=1), "holds again"),
    Mutation(OwnNodeIsNotMissed, scope(homes=TOGETHER, breaks=1, beats=2), UNAWARE),
    Mutation(OwnNodeIsNotWatched, scope(breaks=1, beats=1), UNAWARE),
    Mutation(LineIsMadeOnce, scope(line=False, removals=1), "is refused"),
    Mutation(NeighboursOutliveTheConnection, scope(homes=TOGETHER, cuts=1), SLEEPS),
    Mutation(DowngradedAtTheEnd, DOWNGRADES, TWO_HOLD),
    Mutation(ReleasedNodeIsForgotten, scope(), FORGOTTEN),
    Mutation(WornNumbersCount, replace(scope(leaves=1), begins_at=MAX_INT), TWO_HOLD),
    Mutation(RequestIsMissedInACut, replace(scope(touches=1, cuts=1), revocable=True), DEAF),
    Mutation(
        Machine,
        Scope(READERS, Faults(leaves=0, releases=0), (0, 1, 1)),
        TWO_HOLD,
        (policies.WRITER, HASTY, HASTY),
    ),
]
