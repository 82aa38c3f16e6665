"""What a place hears through its own node, one answer at a time: that it is asked to leave."""

from __future__ import annotations

from typing import Any

from tests.kit.fake_session import FakeSession, Tree


def name_of(place: Any) -> str:
    assert place.node is not None
    return str(place.node.name)


def revocable(tree: Tree, number: int = 1) -> Any:
    place = FakeSession(tree, number).join(revocable=True)
    tree.answer()
    return place


def test_a_request_is_told_once_though_the_node_changes_again() -> None:
    tree = Tree()
    place = revocable(tree)
    for number in (1, 2):
        tree.revoke(name_of(place))
        tree.answer()
        assert place.asked == number
        tree.touch(name_of(place))
        tree.answer()
        assert place.asked == number


def test_a_request_between_join_and_watch_is_told() -> None:
    tree = Tree()
    place = FakeSession(tree).join(revocable=True)
    tree.answer_one()  # its create
    tree.revoke(name_of(place))
    tree.answer()
    assert place.asked == 1


def test_a_new_node_is_watched_though_nobody_told_that_the_old_one_went() -> None:
    tree = Tree()
    revocable(tree)
    session = FakeSession(tree, 2)
    waiter = session.join(revocable=True)
    tree.answer()
    old = name_of(waiter)
    tree.expire(session, new_id=3, nodes_vanish=False)
    waiter.be_woken_for_nothing()
    tree.answer()
    assert name_of(waiter) != old
    tree.revoke(name_of(waiter))
    tree.answer()
    assert waiter.asked == 1


def test_a_late_answer_about_an_old_node_is_no_news() -> None:
    tree = Tree()
    revocable(tree)
    session = FakeSession(tree, 2)
    waiter = session.join(revocable=True)
    tree.answer()
    old = waiter.node
    assert old is not None
    tree.expire(session, new_id=3)
    waiter.be_woken_for_nothing()
    tree.answer()
    assert waiter.node is not old
    waiter.hear_that_it_is_gone(old.name)
    assert not tree.under_way
    tree.revoke(name_of(waiter))
    tree.answer()
    assert waiter.asked == 1


def test_a_late_answer_about_an_old_node_does_not_lose_the_lock() -> None:
    tree = Tree()
    session = FakeSession(tree)
    place = session.join()
    tree.answer_one()  # its create
    old = place.node
    assert old is not None
    tree.expire(session, new_id=2)
    tree.answer()
    assert place.granted
    assert place.node is not old
    place.hear_that_it_is_gone(old.name)
    assert not place.lost


def test_who_has_left_is_not_asked() -> None:
    tree = Tree()
    place = revocable(tree)
    tree.revoke(name_of(place))
    place.leave()
    tree.answer()
    assert place.asked == 0
    assert not tree.watches
