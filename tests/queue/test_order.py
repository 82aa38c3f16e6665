"""The waiting line, one answer at a time: whose turn it is, and what is left behind.

PITFALLS 1, 2 (nodes of an earlier session), 3, 4 (orphans), 8 (watches), 10 (own node missing),
11 (lost and spurious wake-ups), 12 (no herd), 13 (foreign children), 14 (parents removed),
15 (wrap of the sequence), 25i (a cancelled waiter in the middle).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError

from distlock.engine.client import NotConnected
from distlock.exceptions import IncompatiblePeer, LockUnavailable
from distlock.keys.znodes import WORN, is_worn
from distlock.queue.events import Listed
from tests.kit.fake_session import LINE, Counting, FakeSession, Tree

LAST = 2**31 - 1


def holds(place: Counting) -> bool:
    return place.granted


def standing_in_line(tree: Tree, count: int, kind: str = "mutex") -> list[Any]:
    """Contenders of as many sessions, in the order of arrival."""
    places = []
    for number in range(1, count + 1):
        places.append(FakeSession(tree, number).join(kind))
        tree.answer()
    return places


@pytest.mark.parametrize("start", [0, LAST - 4, LAST - 2, LAST, LAST + 1, 2**32 - 3])
def test_one_contender_at_a_time_is_granted_in_order_over_the_wrap(start: int) -> None:
    tree = Tree(sequence=start)
    line = standing_in_line(tree, 6)
    for turn, place in enumerate(line):
        assert [place.granted for place in line] == [other <= turn for other in range(6)]
        place.leave()
        tree.answer()
    assert not tree.nodes
    assert not tree.watches


@pytest.mark.parametrize("start", [LAST - 1, LAST])
def test_a_newcomer_after_the_wrap_does_not_overtake_the_holder(start: int) -> None:
    tree = Tree(sequence=start)
    holder, newcomer = standing_in_line(tree, 2)
    assert holds(holder)
    assert not holds(newcomer)
    assert newcomer.ahead == 1


# --- the end of the sequence numbers --------------------------------------------------------------


@pytest.mark.parametrize("sticks", [True, False], ids=["sticks", "wraps"])
@pytest.mark.parametrize("start", [WORN - 3, WORN, LAST - 2, LAST])
@pytest.mark.parametrize("kind", ["mutex", "fair", "unfair", "batch"])
def test_never_do_two_hold_over_the_end_of_the_numbers(kind: str, start: int, sticks: bool) -> None:
    tree = Tree(sequence=start, sticks=sticks)
    line = standing_in_line(tree, 6, kind)
    waiting = list(line)
    while waiting:
        (holder,) = (place for place in waiting if place.granted)
        assert holder.node is not None
        assert not is_worn(holder.node.number)
        holder.leave()
        tree.answer()
        waiting.remove(holder)
    assert not tree.nodes
    assert not tree.watches
    assert tree.sequence < 100  # it was begun anew


@pytest.mark.parametrize("kind", ["mutex", "unfair"])
def test_a_worn_line_begins_anew_only_when_nobody_is_in_it(kind: str) -> None:
    tree = Tree(sequence=WORN - 1)
    holder, *waiting = standing_in_line(tree, 4, kind)
    assert holder.granted
    assert list(tree.nodes) == [holder.node and holder.node.name]
    assert [place.granted for place in waiting] == [False] * 3
    assert all(place.ahead for place in waiting)
    waiting.pop().leave()
    holder.leave()
    tree.answer()
    assert [place.granted for place in waiting].count(True) == 1
    assert tree.sequence < 4


def test_a_place_that_tries_once_begins_a_worn_line_anew() -> None:
    tree = Tree(sequence=LAST, sticks=True)
    place = FakeSession(tree).join(try_only=True)
    tree.answer()
    assert holds(place)
    rival = FakeSession(tree, 2).join(try_only=True)
    tree.answer()
    assert (rival.granted, rival.ahead) == (False, 1)


def test_a_worn_line_with_data_is_not_removed() -> None:
    tree = Tree(sequence=LAST, sticks=True)
    tree.data = b"somebody's own"
    place = FakeSession(tree).join()
    tree.answer()
    assert not holds(place)
    assert isinstance(place.error, LockUnavailable)
    assert tree.exists
    assert not tree.nodes


def test_whoever_joins_while_a_worn_line_is_removed_is_waited_for() -> None:
    tree = Tree(sequence=WORN)
    place = FakeSession(tree).join()
    while tree.sent["remove"] == 0:
        tree.answer_one()
    tree.add("_c_java-lock-2080374785", 77)
    tree.answer()
    assert not holds(place)
    assert place.ahead
    tree.remove("_c_java-lock-2080374785")
    tree.answer()
    assert holds(place)


def test_a_peer_that_stays_in_a_worn_line_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distlock.contenders.contender.WORN_SECONDS", -1.0)
    tree = Tree(sequence=WORN + 1)
    tree.add(f"_c_java-lock-{WORN}", 77)
    place = FakeSession(tree).join()
    tree.answer()
    assert not holds(place)
    place.leave()
    tree.answer()
    assert isinstance(place.error, IncompatiblePeer)
    assert not tree.watches


def test_a_holder_of_a_line_that_is_not_worn_yet_is_no_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("distlock.contenders.contender.WORN_SECONDS", -1.0)
    tree = Tree(sequence=WORN - 1)
    _, place = standing_in_line(tree, 2)
    place.leave()
    tree.answer()
    assert place.error is None


# --- releases and wake-ups ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sent"), [("mutex", {"delete": 1}), ("fair", {"delete": 1, "children": 1})]
)
def test_a_release_wakes_one_waiter_only(kind: str, sent: dict[str, int]) -> None:
    tree = Tree()
    first, *waiting = standing_in_line(tree, 10, kind)
    tree.sent.clear()
    first.leave()
    tree.answer()
    assert [place.settled for place in waiting] == [1] + [0] * 8
    assert tree.sent == sent


def test_an_uncontended_grant_takes_one_round_trip() -> None:
    tree = Tree()
    place = FakeSession(tree).join()
    assert tree.sent == {"create": 1, "children": 1}
    tree.answer()
    assert holds(place)
    assert tree.sent == {"create": 1, "children": 1}


def test_the_successor_of_a_cancelled_waiter_waits_on() -> None:
    tree = Tree()
    holder, cancelled, successor = standing_in_line(tree, 3)
    cancelled.leave()
    tree.answer()
    assert holds(holder)
    assert not holds(successor)
    holder.leave()
    tree.answer()
    assert holds(successor)


def test_a_waiter_that_leaves_together_with_the_holder_is_not_waited_for() -> None:
    tree = Tree()
    holder, cancelled, successor = standing_in_line(tree, 3)
    holder.leave()
    cancelled.leave()
    tree.answer()
    assert holds(successor)
    assert not holds(cancelled)


def test_a_predecessor_that_goes_before_the_watch_is_set_is_noticed() -> None:
    tree = Tree()
    (holder,) = standing_in_line(tree, 1)
    waiter = FakeSession(tree, 2).join()
    tree.answer_one()  # its create
    tree.answer_one()  # its list, in which the holder still is
    holder.leave()
    tree.under_way.rotate(1)  # the delete comes before the watch
    tree.answer()
    assert holds(waiter)


@pytest.mark.parametrize("fair", [True, False])
def test_one_who_is_woken_twice_is_granted_once(fair: bool) -> None:
    tree = Tree()
    (holder,) = standing_in_line(tree, 1)
    waiter = FakeSession(tree, 2).join("mutex" if fair else "unfair")
    tree.answer()
    holder.leave()
    for _ in range(3):
        waiter.be_woken_for_nothing()
    tree.answer()
    assert holds(waiter)
    assert waiter.settled == 1
    assert len(tree.nodes) == 1


class SlowToDelete(FakeSession):
    """Its deletes are answered when the test likes."""

    def __init__(self, tree: Tree, number: int, late: deque[Callable[[], None]]) -> None:
        super().__init__(tree, number)
        self.late = late

    def delete(self, *args: Any) -> None:
        super().delete(*args)
        self.late.append(self.tree.under_way.pop())


def test_a_crowd_that_does_not_queue_does_not_stumble_over_its_own_nodes_for_ever() -> None:
    tree = Tree()
    (holder,) = standing_in_line(tree, 1)
    late: deque[Callable[[], None]] = deque()
    crowd = [SlowToDelete(tree, number, late).join("unfair") for number in range(2, 6)]
    tree.answer()
    holder.leave()  # while all the others' nodes are still there
    for _ in range(200):
        tree.answer()
        if late:
            late.popleft()()
    assert [place.granted for place in crowd].count(True) == 1
    assert len(tree.nodes) == 1


class AnswersAtOnce(FakeSession):
    """Its lists are answered before the call returns, as the connection thread may do."""

    def children(self, *args: Any, **options: Any) -> None:
        super().children(*args, **options)
        self.tree.answer()


@pytest.mark.parametrize("fair", [True, False])
def test_an_answer_that_overtakes_the_one_who_joins_counts(fair: bool) -> None:
    tree = Tree()
    standing_in_line(tree, 1)
    place = AnswersAtOnce(tree, 2).join("mutex" if fair else "unfair", try_only=True)
    assert place.settled == 1
    assert place.ahead == 1


def test_a_change_of_the_predecessor_is_no_grant() -> None:
    tree = Tree()
    holder, waiter = standing_in_line(tree, 2)
    tree.touch(next(iter(tree.nodes)))
    tree.answer()
    assert not holds(waiter)
    holder.leave()
    tree.answer()
    assert holds(waiter)


def test_an_own_node_that_is_missing_starts_anew() -> None:
    tree = Tree()
    place = FakeSession(tree).join()
    tree.answer_one()  # the create
    (broken,) = tree.nodes
    tree.remove(broken)
    tree.answer()
    assert holds(place)
    assert place.node is not None
    assert place.node.name != broken
    assert list(tree.nodes) == [place.node.name]


@pytest.mark.parametrize("kind", ["mutex", "fair"])
def test_a_waiter_whose_node_was_broken_goes_to_the_end_of_the_line(kind: str) -> None:
    tree = Tree()
    holder, broken, last = standing_in_line(tree, 3, kind)
    assert broken.node is not None
    broken.deadline_renewed()  # a heartbeat; before the first one nobody looks
    tree.answer()
    tree.remove(broken.node.name)
    holder.leave()
    tree.answer()
    assert holds(last)
    assert not holds(broken)
    last.leave()
    tree.answer()
    assert holds(broken)


def test_a_node_of_an_earlier_session_is_never_granted() -> None:
    """CURATOR-604: the new session's list still shows it, first in line."""
    tree = Tree()
    session = FakeSession(tree)
    place = session.join()
    tree.answer_one()  # the create
    (ghost,) = tree.nodes
    tree.expire(session, new_id=2, nodes_vanish=False)
    tree.answer()
    assert not holds(place)
    tree.remove(ghost)
    tree.answer()
    assert holds(place)
    assert place.node is not None
    assert place.node.session_id == 2


def test_a_waiter_is_not_granted_on_the_node_of_an_earlier_session() -> None:
    tree = Tree()
    (holder,) = standing_in_line(tree, 1)
    session = FakeSession(tree, 2)
    waiter = session.join()
    tree.answer()
    ghost = list(tree.nodes)[-1]
    tree.expire(session, new_id=3, nodes_vanish=False)
    holder.leave()
    tree.answer()
    assert not holds(waiter)
    tree.remove(ghost)
    tree.answer()
    assert holds(waiter)
    assert waiter.node is not None
    assert waiter.node.session_id == 3


def test_a_create_whose_reply_was_lost_is_found_again() -> None:
    tree = Tree()
    session = FakeSession(tree)
    session.lose_reply_of_create = True
    place = session.join()
    tree.answer()
    assert holds(place)
    assert len(tree.nodes) == 1
    assert tree.sent["create"] == 1


def test_a_create_that_never_arrived_is_sent_again() -> None:
    tree = Tree()
    session = FakeSession(tree)
    session.fails["create"] = NotConnected()
    place = session.join()
    tree.answer()
    assert holds(place)
    assert len(tree.nodes) == 1
    assert tree.sent["create"] == 2


def test_a_found_node_of_the_session_before_is_not_adopted() -> None:
    """CURATOR-498: the search after a lost reply meets a node of the dying session."""
    tree = Tree()
    session = FakeSession(tree)
    session.lose_reply_of_create = True
    place = session.join()
    tree.answer_one()  # the create, whose reply is lost
    (ghost,) = tree.nodes
    tree.expire(session, new_id=2, nodes_vanish=False)
    tree.answer()
    assert not holds(place)
    tree.remove(ghost)
    tree.answer()
    assert holds(place)
    assert place.node is not None
    assert place.node.session_id == 2


@pytest.mark.parametrize("lost", ["", "request", "reply"])
@pytest.mark.parametrize("answered", range(6))
def test_whoever_leaves_at_any_moment_leaves_nothing(answered: int, lost: str) -> None:
    tree = Tree()
    holder, *_ = standing_in_line(tree, 1)
    session = FakeSession(tree, 2)
    if lost == "request":
        session.fails["create"] = NotConnected()
    session.lose_reply_of_create = lost == "reply"
    place = session.join()
    for _ in range(min(answered, len(tree.under_way))):
        tree.answer_one()
    place.leave()
    tree.answer()
    assert holder.node is not None
    assert list(tree.nodes) == [holder.node.name]
    assert not tree.watches
    assert not session.heartbeat.attended
    place.leave()
    tree.answer()
    assert not holds(place)


class _LeavesWhenRead(list[str]):
    """A list during whose reading another thread leaves the line."""

    def __init__(self, place: Counting, names: list[str]) -> None:
        super().__init__(names)
        self._place = place

    def __iter__(self) -> Any:
        self._place.leave()
        return super().__iter__()


def test_leaving_while_the_line_is_looked_at_leaves_no_watch() -> None:
    """PITFALLS 8: the caller's thread leaves while the connection thread decides to watch."""
    tree = Tree()
    holder, *_ = standing_in_line(tree, 1)
    place = FakeSession(tree, 2).join()
    tree.answer_one()  # the create
    tree.under_way.popleft()  # the list
    place.hear(Listed(_LeavesWhenRead(place, list(tree.nodes))))
    tree.answer()
    assert holder.node is not None
    assert list(tree.nodes) == [holder.node.name]
    assert not tree.watches


def test_parents_are_made_after_they_were_missed() -> None:
    tree = Tree()
    tree.remove_line()
    place = FakeSession(tree).join()
    tree.answer()
    assert holds(place)
    assert tree.sent == {"create": 2, "children": 2, "container": 1}


def test_a_parent_that_is_reaped_again_is_made_again() -> None:
    tree = Tree()
    tree.remove_line()
    tree.reaped_at_once = 7
    place = FakeSession(tree).join()
    tree.answer()
    assert holds(place)


def test_foreign_children_are_not_waited_for() -> None:
    tree = Tree()
    for name in ("config", "a-lock-x", "lease-0000000000"):
        tree.add(name)
    assert holds(*standing_in_line(tree, 1))


def test_a_writer_that_reads_on_is_still_ahead_when_its_node_goes() -> None:
    """CURATOR-621: a mutex on the same path, second in line, may not do without the list then."""
    tree = Tree(sequence=1)
    tree.add("_c_w-__WRIT__0000000000")
    place = FakeSession(tree).join()
    tree.answer()
    tree.add("_c_r-__READ__0000000000")  # in the very spot
    tree.remove("_c_w-__WRIT__0000000000")
    tree.answer()
    assert not holds(place)
    tree.remove("_c_r-__READ__0000000000")
    tree.answer()
    assert holds(place)


def test_a_curator_client_ahead_is_waited_for() -> None:
    tree = Tree(sequence=5)
    tree.add("_c_9b0ca9d2-64ee-4ff0-8a4b-b0e0a4f0e4b7-lock-0000000004", session_id=77)
    assert not holds(*standing_in_line(tree, 1))


def test_a_lock_of_kazoo_in_the_line_is_refused() -> None:
    tree = Tree()
    tree.add("9b0ca9d264ee4ff08a4bb0e0a4f0e4b7__lock__0000000000")
    (place,) = standing_in_line(tree, 1)
    assert not holds(place)
    assert place.settled == 1
    assert isinstance(place.error, IncompatiblePeer)


def test_a_place_that_tries_once_watches_nobody() -> None:
    tree = Tree()
    standing_in_line(tree, 1)
    place = FakeSession(tree, 2).join(try_only=True)
    tree.answer()
    assert (place.settled, place.granted, place.ahead) == (1, False, 1)
    assert not tree.watches


def test_the_head_of_the_line_is_known_to_who_waits() -> None:
    tree = Tree(sequence=LAST)
    holder, _, last = standing_in_line(tree, 3)
    assert holder.node is not None
    assert last.head == f"{LINE}/{holder.node.name}"
    assert last.ahead == 2


@pytest.mark.parametrize("request_", ["create", "children", "watch"])
def test_a_refusal_of_the_server_settles_the_place(request_: str) -> None:
    tree = Tree()
    standing_in_line(tree, 1)
    session = FakeSession(tree, 2)
    session.fails[request_] = AuthFailedError()
    place = session.join()
    tree.answer()
    assert place.settled == 1
    assert isinstance(place.error, LockUnavailable)
    place.leave()
    tree.answer()
    assert len(tree.nodes) == 1


@pytest.mark.parametrize("request_", ["children", "watch"])
def test_a_lost_look_at_the_line_is_repeated(request_: str) -> None:
    tree = Tree()
    (holder,) = standing_in_line(tree, 1)
    session = FakeSession(tree, 2)
    session.fails[request_] = NotConnected()
    place = session.join()
    tree.answer()
    assert place.ahead == 1
    holder.leave()
    tree.answer()
    assert holds(place)
    assert tree.sent["create"] == 2


def test_parents_that_may_not_be_made_settle_the_place() -> None:
    tree = Tree()
    tree.remove_line()
    session = FakeSession(tree)
    session.fails["container"] = AuthFailedError()
    tree.reaped_at_once = 1
    place = session.join()
    tree.answer()
    assert place.settled == 1
    assert isinstance(place.error, LockUnavailable)
