"""Fixtures of the deadlock tests: those of the mutex, and a tree in which no notice is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.deadlock.tools import AFTER, notices
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from tests.kit.losses import SetOptions
    from tests.kit.tools import Tree


@pytest.fixture
def options(two_sessions: Settings) -> SetOptions:
    """Changes options of an alias, before its session is there."""

    def change(using: str = "default", **options: object) -> None:
        aliases = two_sessions.DISTLOCK
        two_sessions.DISTLOCK = {**aliases, using: {**aliases[using], **options}}

    return change


@pytest.fixture(autouse=True)
def _looks_soon(options: SetOptions) -> None:
    options(DEADLOCK_AFTER=AFTER)
    options("other", DEADLOCK_AFTER=AFTER)


@pytest.fixture
def tree_of_waits(tree: Tree, _looks_soon: None) -> Iterator[Tree]:
    """The test's namespace; at the end of the test there may be no notice in it either."""
    yield tree
    eventually(lambda: not notices(tree), PATIENCE, "a tree without notices")
