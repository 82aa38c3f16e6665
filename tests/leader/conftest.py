"""No candidate outlives its test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from distlock.locks.leader import Leader
from tests.kit.tools import MakeOwner, Tree


@pytest.fixture(autouse=True)
def _stopped_at_the_end(
    tree: Tree,  # noqa: ARG001 - it ends after this
    make_owner: MakeOwner,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """Stop all candidates before their threads are awaited, and the tree is looked at.

    A test that fails would leave one that runs for ever.
    """
    begun: list[Leader] = []
    begin = Leader.__init__

    def noted(self: Leader, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        begun.append(self)

    monkeypatch.setattr(Leader, "__init__", noted)
    yield
    for leader in begun:
        leader.stop()
