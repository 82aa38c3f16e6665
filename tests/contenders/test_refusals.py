"""Contenders that cannot wait get an error with its cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.exceptions import IncompatiblePeer
from distlock.keys.znodes import WORN
from tests.contenders.tools import holds, standing_in_line
from tests.kit.fake_session import FakeSession, Tree

if TYPE_CHECKING:
    import pytest


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
