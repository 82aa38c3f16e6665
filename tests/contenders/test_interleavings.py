"""The waiting line under every order of events, around the last numbers.

Answers come one at a time, callers leave and sessions expire in between, ghosts of old sessions
stay in the list, some do not queue, and some have turns. Never two hold, and whenever all is
answered somebody does (no lost wake-up), also while who has lost the lock does not leave; and
whoever is asked to leave knows it.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distlock.contenders.batch import BatchMember
from distlock.engine.errors import NoAuth, NotConnected
from distlock.keys.znodes import WORN
from tests.kit.fake_session import CONTENDERS, Counting, CountingContender, FakeSession, Tree

LAST = 2**31 - 1
SESSIONS = st.integers(0, 1)
KINDS = st.sampled_from(sorted(CONTENDERS))
LOSABLE = ["create", "children", "watch", "read", "remove"]


class WaitingLine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree()
        self.sessions = [FakeSession(self.tree, number) for number in (1, 2)]
        self.next_session_id = 3
        self.places: list[Counting] = []
        #: The names of the nodes that an operator has broken.
        self.broken: set[str] = set()

    @initialize(
        start=st.integers(WORN - 6, WORN + 2) | st.integers(LAST - 6, LAST) | st.just(0),
        sticks=st.booleans(),
    )
    def begin(self, start: int, sticks: bool) -> None:
        self.tree.sequence = start
        self.tree.sticks = sticks

    @rule(session=SESSIONS, kind=KINDS)
    def join(self, session: int, kind: str, **options: Any) -> None:
        self.places.append(self.sessions[session].join(kind, revocable=True, **options))

    @rule(session=SESSIONS, handoff=st.integers(1, 5))
    def join_for_turns(self, session: int, handoff: int) -> None:
        self.join(session, "batch", handoff=handoff)

    @rule(session=SESSIONS, kind=KINDS)
    def try_to_join(self, session: int, kind: str) -> None:
        self.join(session, kind, try_only=True)

    @rule(session=SESSIONS, kind=KINDS)
    def join_and_be_refused(self, session: int, kind: str) -> None:
        self.sessions[session].fails["create"] = NoAuth()
        self.join(session, kind)

    @rule(session=SESSIONS, kind=KINDS, what=st.sampled_from(LOSABLE))
    def join_and_lose(self, session: int, kind: str, what: str) -> None:
        self.sessions[session].fails[what] = NotConnected()
        self.join(session, kind)

    @rule(session=SESSIONS, kind=KINDS)
    def join_and_lose_the_reply(self, session: int, kind: str) -> None:
        self.sessions[session].lose_reply_of_create = True
        self.join(session, kind)

    @precondition(lambda self: self.places)
    @rule(data=st.data(), times=st.integers(1, 2))
    def be_woken_for_nothing(self, data: Any, times: int) -> None:
        """As when a connection is lost: by the watch, and by the answer that never came."""
        place = data.draw(st.sampled_from(self.places))
        for _ in range(times):
            if isinstance(place, CountingContender):
                place.be_woken_for_nothing()

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        index = data.draw(st.integers(0, len(self.places) - 1))
        self.places.pop(index).leave()

    @precondition(lambda self: self.tree.under_way)
    @rule(count=st.integers(1, 3))
    def answer(self, count: int) -> None:
        for _ in range(min(count, len(self.tree.under_way))):
            self.tree.answer_one()

    @rule(session=SESSIONS, nodes_vanish=st.booleans(), stay=st.booleans())
    def expire(self, session: int, nodes_vanish: bool, stay: bool) -> None:
        self.tree.expire(
            self.sessions[session], new_id=self.next_session_id, nodes_vanish=nodes_vanish
        )
        self.next_session_id += 1
        if not stay:  # what was granted is lost, and its owner is told so elsewhere
            self.leave_what_is_lost()

    @rule(session=SESSIONS, renewed=st.booleans())
    def have_a_gap_in_the_deadline(self, session: int, renewed: bool) -> None:
        """The server was not heard for long, and has kept the session."""
        self.sessions[session].deadline.end()
        if renewed:
            self.sessions[session].renew()

    @rule(session=SESSIONS)
    def part(self, session: int) -> None:
        """The connection is lost and comes back: nobody knows who its neighbours are."""
        self.sessions[session].reconnect()

    @precondition(lambda self: self.tree.nodes)
    @rule(data=st.data())
    def be_broken_by_an_operator(self, data: Any) -> None:
        name = data.draw(st.sampled_from(list(self.tree.nodes)))
        self.tree.remove(name)
        self.broken.add(name)

    @rule()
    def be_removed_with_the_line(self) -> None:
        """By an operator; the next line counts from 0 again."""
        self.broken.update(self.tree.nodes)
        self.tree.remove_line()

    @rule()
    def leave_what_is_lost(self) -> None:
        for place in self._lost():
            self.places.remove(place)
            place.leave()

    @precondition(lambda self: self.tree.nodes)
    @rule(data=st.data())
    def revoke(self, data: Any) -> None:
        self.tree.revoke(data.draw(st.sampled_from(list(self.tree.nodes))))

    @rule()
    def come_to_rest(self) -> None:
        for session in self.sessions:
            session.renew()
        self.tree.answer()
        self._remove_ghosts()
        self.tree.answer()
        self._beat()
        self._leave_what_failed()
        self.tree.answer()
        self._beat()
        waiting = [place for place in self.places if not place.granted]
        assert all(place.settled or place.ahead is not None for place in waiting)
        lost = self._lost()
        if not any(place.node and place.node.name in self.tree.nodes for place in lost):
            # Who has lost the node and works on keeps nobody out.
            assert len(self._holders()) == any(place not in lost for place in self.places)
        self.leave_what_is_lost()
        self.tree.answer()
        assert len(self._holders()) == bool(self.places)
        for place in self.places:
            node = self.tree.nodes.get(place.node.name) if place.node else None
            revocable = not isinstance(place, BatchMember)
            assert place.asked or node is None or not (node.version and revocable)

    @invariant()
    def at_most_one_holds(self) -> None:
        assert len(self._holders()) <= 1

    @invariant()
    def nobody_is_granted_on_a_node_of_an_earlier_session(self) -> None:
        assert not any(place.granted_on_a_ghost for place in self.places)

    @invariant()
    def nobody_is_granted_what_is_lost(self) -> None:
        assert not any(place.granted_in_vain for place in self.places)

    @invariant()
    def nobody_is_settled_twice(self) -> None:
        # Who does not wait is told at each look that the lock is busy, until it leaves.
        assert all(place.settled <= 1 or place.trying for place in self.places)

    def teardown(self) -> None:
        for place in self.places:
            place.leave()
        self.tree.answer()
        self._remove_ghosts()
        self.tree.answer()
        assert not self.tree.nodes
        assert not self.tree.watches
        assert not any(session.heartbeat.attended for session in self.sessions)

    def _ids(self) -> set[int]:
        return {session.id for session in self.sessions}

    def _holders(self) -> list[Counting]:
        # Who takes over just when an operator breaks its node is told so by the watch on it.
        return [
            place
            for place in self.places
            if place.granted and place.standing and not (self._is_broken(place) or place.lost)
        ]

    def _is_broken(self, place: Counting) -> bool:
        return place.node is not None and place.node.name in self.broken

    def _lost(self) -> list[Counting]:
        return [place for place in self.places if place.granted and place.lost]

    def _leave_what_failed(self) -> None:
        """Whoever was refused, or did not want to wait, gives up."""
        for place in [place for place in self.places if not place.granted]:
            if place.error or (place.trying and place.ahead is not None):
                self.places.remove(place)
                place.leave()

    def _beat(self) -> None:
        """A heartbeat sets the watches that were lost, and tells what was lost.

        By then the callers have taken what they were granted; others are settled again.
        """
        for place in self.places:
            if place.granted:
                place.listen(lambda _: None)
        for act in ("deadline_renewed", "report"):
            for session in self.sessions:
                for place in list(session.heartbeat.attended):
                    getattr(place, act)()
            self.tree.answer()

    def _remove_ghosts(self) -> None:
        for name, stat in list(self.tree.nodes.items()):
            if stat.ephemeralOwner not in self._ids():
                self.tree.remove(name)


TestWaitingLine = WaitingLine.TestCase
TestWaitingLine.settings = settings(max_examples=200, stateful_step_count=25, deadline=None)
