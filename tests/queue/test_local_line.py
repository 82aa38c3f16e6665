"""The contenders of one process in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.queue.local_line import LocalLine
from tests.queue.world import node_of

if TYPE_CHECKING:
    from distlock.queue.events import Node

FIRST = node_of("_c_a-lock-0000000004", 10, 1)
NAMESAKE = node_of("_c_b-lock-0000000004", 20, 1)


def entered(node: Node = FIRST) -> LocalLine:
    line = LocalLine()
    line.enter(node)
    return line


def test_whoever_leaves_names_its_follower_once() -> None:
    line = entered()
    line.follow(4, "B")
    assert line.leave(FIRST, epoch=1) == "B"
    assert line.leave(FIRST, epoch=1) is None
    assert not line.nodes


def test_a_follower_that_leaves_is_not_named() -> None:
    line = entered()
    line.follow(4, "B")
    line.unfollow(FIRST.name, "A")
    line.unfollow(FIRST.name, "B")
    assert line.leave(FIRST) is None


def test_a_grant_stays_until_somebody_comes() -> None:
    line = entered()
    line.leave(FIRST, epoch=7)
    local = line.at(4)
    assert local is not None
    assert local.released == 7
    line.take(4)
    assert line.at(4) is None


def test_a_grant_stays_no_longer_than_its_node() -> None:
    line = entered()
    line.leave(FIRST, epoch=7)
    line.forget(FIRST.name)
    assert not line.nodes


def test_a_node_whose_deletion_is_answered_first_still_names_its_follower() -> None:
    line = entered()
    line.follow(4, "B")
    line.forget(FIRST.name)
    assert line.leave(FIRST, epoch=7) == "B"


def test_a_node_whose_deletion_is_answered_first_leaves_nothing() -> None:
    line = entered()
    line.forget(FIRST.name)
    line.leave(FIRST, epoch=7)
    assert not line.nodes


def test_without_a_grant_nothing_stays() -> None:
    line = entered()
    line.leave(FIRST)
    assert not line.nodes


def test_a_namesake_of_an_earlier_line_is_another_one() -> None:
    line = entered()
    line.enter(NAMESAKE)
    line.leave(FIRST)
    line.forget(FIRST.name)
    line.unfollow(FIRST.name, "B")
    local = line.at(4)
    assert local is not None
    assert local.name == NAMESAKE.name


def test_with_the_connection_all_is_forgotten() -> None:
    line = entered()
    line.clear()
    assert line.leave(FIRST, epoch=7) is None
