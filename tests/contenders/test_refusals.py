"""Contenders that cannot wait get an error with its cause."""

from __future__ import annotations

import pytest
from kazoo.exceptions import AuthFailedError

from distlock.exceptions import IncompatiblePeer, LockUnavailable
from distlock.keys.znodes import WORN
from tests.contenders.tools import LAST, holds, standing_in_line
from tests.kit.fake_session import FakeSession, Tree


def test_a_lock_of_kazoo_in_the_line_is_refused() -> None:
    tree = Tree()
    tree.add("9b0ca9d264ee4ff08a4bb0e0a4f0e4b7__lock__0000000000")
    (place,) = standing_in_line(tree, 1)
    assert not holds(place)
    assert place.settled == 1
    assert isinstance(place.error, IncompatiblePeer)


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


def test_a_worn_line_with_data_is_not_removed() -> None:
    tree = Tree(sequence=LAST, sticks=True)
    tree.data = b"somebody's own"
    place = FakeSession(tree).join()
    tree.answer()
    assert not holds(place)
    assert isinstance(place.error, LockUnavailable)
    assert tree.exists
    assert not tree.nodes


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
