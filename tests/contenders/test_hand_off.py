"""Instants of a hand-over that no real server shows on demand, over a double of the session."""

from __future__ import annotations

from typing import Any

from distlock.engine.errors import NoAuth
from tests.kit.fake_session import FakeSession, Tree


def stand(session: FakeSession, kind: str = "mutex", **options: Any) -> Any:
    """A place in line that has all its answers."""
    place = session.join(kind, **options)
    session.tree.answer()
    return place


def test_who_waits_for_a_turn_was_in_line_also_before_the_next_batch_is() -> None:
    """Or else one whose time is up just then would be told that the server did not answer."""
    session = FakeSession(Tree())
    holder, waiter = stand(session, "batch"), stand(session, "batch")
    holder.lose()
    holder.leave()
    while waiter._node is holder.batch_node:
        session.tree.answer_one()
    assert not waiter.granted
    assert waiter.was_in_line
    assert waiter.ahead == 1
    session.tree.answer()
    assert waiter.granted


def test_a_next_batch_that_may_not_join_says_so_to_those_who_wait() -> None:
    session = FakeSession(Tree())
    holder = stand(session, "batch", handoff=1)
    session.fails["create"] = NoAuth()
    waiter = stand(session, "batch", handoff=1)
    assert not waiter.settled
    holder.leave()
    session.tree.answer()
    assert waiter.error is not None
    assert waiter.settled == 1
    after = stand(session, "batch")
    assert after.granted


def test_one_who_does_not_wait_learns_it_when_the_batch_knows_its_place() -> None:
    tree = Tree()
    other, session = FakeSession(tree, 1), FakeSession(tree, 2)
    stand(other)
    waiter, hurried = session.join("batch"), session.join("batch", try_only=True)
    tree.answer()
    assert hurried.settled
    assert hurried.ahead
    assert not waiter.settled
    hurried.leave()
    tree.answer()
    assert len(tree.nodes) == 2
