"""The wait queue, one answer at a time: whose turn it is, and what is left behind.

Exceptions, watches, the own node missing, lost and spurious wake-ups, no herd, foreign children,
and a waiter that gives up in the middle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from distlock.engine.errors import NotConnected
from distlock.queue.events import Listed
from tests.contenders.tools import LAST, holds, standing_in_line
from tests.kit.fake_session import LINE, Counting, FakeSession, Tree
from tests.kit.helpers import eventually


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
    """The caller's thread leaves while the connection thread decides to watch."""
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


def test_a_hold_that_was_lost_before_is_given_up_all_the_same() -> None:
    tree = Tree()
    session = FakeSession(tree)
    place = session.join()
    tree.answer()
    session.deadline.end()
    assert place.lost
    tree.answer()
    assert tree.nodes  # until the caller leaves
    place.give_up_after(0)
    eventually(lambda: tree.under_way)
    tree.answer()
    assert not tree.nodes
