"""Lost replies, ended sessions and missing parents, one answer at a time.

Nodes of an earlier session, orphans, and parents that are removed in between.
"""

from __future__ import annotations

from typing import Any

import pytest

from distlock.contenders import contender
from distlock.engine.errors import NoAuth, NotConnected
from tests.contenders.tools import holds, standing_in_line
from tests.kit.fake_session import FakeSession, Tree
from tests.kit.helpers import eventually


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


def holds_without(tree: Tree, ghost: str, place: Any, *, session_id: int) -> None:
    """Check that a contender is granted once the ghost is gone, and on its new node."""
    tree.answer()
    assert not holds(place)
    tree.remove(ghost)
    tree.answer()
    assert holds(place)
    assert place.node is not None
    assert place.node.session_id == session_id


def test_a_node_of_an_earlier_session_is_never_granted() -> None:
    """CURATOR-604: the new session's list still shows it, first in line."""
    tree = Tree()
    session = FakeSession(tree)
    place = session.join()
    tree.answer_one()  # the create
    (ghost,) = tree.nodes
    tree.expire(session, new_id=2, nodes_vanish=False)
    holds_without(tree, ghost, place, session_id=2)


def test_a_waiter_is_not_granted_on_the_node_of_an_earlier_session() -> None:
    tree = Tree()
    (holder,) = standing_in_line(tree, 1)
    session = FakeSession(tree, 2)
    waiter = session.join()
    tree.answer()
    ghost = list(tree.nodes)[-1]
    tree.expire(session, new_id=3, nodes_vanish=False)
    holder.leave()
    holds_without(tree, ghost, waiter, session_id=3)


def test_a_found_node_of_the_session_before_is_not_adopted() -> None:
    """CURATOR-498: the search after a lost reply meets a node of the dying session."""
    tree = Tree()
    session = FakeSession(tree)
    session.lose_reply_of_create = True
    place = session.join()
    tree.answer_one()  # the create, whose reply is lost
    (ghost,) = tree.nodes
    tree.expire(session, new_id=2, nodes_vanish=False)
    holds_without(tree, ghost, place, session_id=2)


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("request_", ["children", "read"])
def test_a_search_that_the_server_refuses_leaves_no_node(
    monkeypatch: pytest.MonkeyPatch, request_: str, leaves: bool
) -> None:
    """Such as Redis' -BUSY just after a reconnection: nobody else knows of the node."""
    monkeypatch.setattr(contender, "REFUSED_SECONDS", 0)
    tree = Tree()
    session = FakeSession(tree)
    session.lose_reply_of_create = True
    place = session.join()
    session.fails[request_] = NoAuth()
    tree.answer_one()  # the create, whose reply is lost
    while request_ == "read" and not tree.sent["read"]:
        tree.answer_one()
    if leaves:
        place.leave()

    def done() -> bool:
        tree.answer()
        return holds(place) or not tree.nodes

    eventually(done)
    assert holds(place) is (request_ == "children" and not leaves)
    place.leave()
    tree.answer()
    assert not tree.nodes


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
