"""Instants of a hand-over that no real server shows on demand, over a double of the session."""

from __future__ import annotations

from typing import Any

import pytest

from distlock.engine.errors import NoAuth
from tests.kit.fake_session import FakeSession, Tree


def stand(session: FakeSession, kind: str = "mutex", **options: Any) -> Any:
    """A place in line that has all its answers."""
    place = session.join(kind, **options)
    session.tree.answer()
    return place


@pytest.mark.parametrize("watched", [True, False])
def test_a_waiter_that_is_broken_as_it_takes_over_does_not_keep_the_lock(watched: bool) -> None:
    session = FakeSession(Tree())
    holder, waiter, last = stand(session), stand(session), stand(session, "fair")
    if watched:
        waiter.deadline_renewed()
        session.tree.answer()
    holder.leave()
    session.tree.remove(waiter.node.name)
    session.tree.answer()
    waiter.deadline_renewed()  # a holder's first heartbeat sets the watch
    session.tree.answer()
    assert waiter.granted
    assert waiter.lost
    waiter.leave()
    session.tree.answer()
    assert last.granted
    last.leave()
    session.tree.answer()
    assert not session.tree.nodes


@pytest.mark.parametrize("renewed", [True, False])
def test_what_was_released_before_a_gap_in_the_lease_is_not_taken_over_after_it(
    renewed: bool,
) -> None:
    session = FakeSession(Tree())
    holder, waiter = stand(session), session.join()
    holder.leave()
    session.deadline.end()
    if renewed:
        session.renew()
    session.tree.answer()
    assert waiter.granted
    assert not waiter.granted_in_vain


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


def test_a_next_batch_that_has_the_lock_does_not_wait_for_who_has_lost_it() -> None:
    session = FakeSession(Tree())
    holder, waiter = stand(session, "batch", handoff=1), stand(session, "batch", handoff=1)
    session.tree.expire(session, new_id=2)
    session.tree.answer()
    assert waiter.granted
    assert not waiter.lost
    holder.leave()
    session.tree.answer()
    assert holder.lost
    assert not waiter.lost


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


def test_who_holds_in_a_line_that_was_removed_hands_nothing_over_in_the_next_one() -> None:
    """The numbers begin at 0 again, so a newcomer's follows that of the former holder."""
    tree = Tree()
    session, other = FakeSession(tree, 1), FakeSession(tree, 2)
    former = stand(session)
    tree.remove_line()
    rival = stand(other)
    newcomer = stand(session)
    former.leave()
    tree.answer()
    assert rival.granted
    assert not newcomer.granted
    rival.leave()
    tree.answer()
    assert newcomer.granted
    newcomer.leave()
    tree.answer()
    assert not tree.nodes


def test_a_number_in_the_next_line_is_not_taken_for_the_same_one_in_the_removed_line() -> None:
    tree = Tree()
    session, other = FakeSession(tree, 1), FakeSession(tree, 2)
    former = stand(session)
    tree.remove_line()
    rival = stand(other)
    stand(session).leave()  # so the next one of this process lists the line
    tree.answer()
    newcomer = stand(session)
    former.leave()
    tree.answer()
    assert rival.granted
    assert not newcomer.granted
    rival.leave()
    tree.answer()
    assert newcomer.granted


def test_a_former_holder_with_the_same_number_does_not_part_neighbours() -> None:
    tree = Tree()
    session = FakeSession(tree)
    former = stand(session)
    tree.remove_line()
    first = stand(session)
    former.leave()
    tree.answer()
    tree.sent.clear()
    second = stand(session)
    assert second.before is first
    assert "children" not in tree.sent
    for place in (first, second):
        assert place.granted
        place.leave()
        tree.answer()
