"""The end of a line's sequence numbers at 2³¹, one answer at a time."""

from __future__ import annotations

import pytest

from distlock.keys.znodes import WORN, is_worn
from tests.contenders.tools import LAST, holds, standing_in_line
from tests.kit.fake_session import FakeSession, Tree


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
