"""Fixtures of the deadlock tests: those of the mutex, and a tree in which no notice is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from distlock import zk_lock
from distlock.locks.deadlocks import DeadlockDetector
from tests.deadlock.tools import AFTER, Other, notices
from tests.inspection.tools import cleared
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree


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


@pytest.fixture
def other(tree_of_waits: Tree) -> Iterator[Other]:
    with cleared(tree_of_waits):
        yield Other(tree_of_waits)


@pytest.fixture
def owner(other: Other, make_owner: MakeOwner) -> Iterator[Owner]:
    """Our owner, who holds "a"."""
    owner, lock = make_owner(), zk_lock("a")
    assert owner.now(lock.acquire)
    other.tree.await_line("a", 1)
    yield owner
    if owner.now(lambda: lock.held):
        owner.now(lock.release)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each look at the tree has found, two for a deadlock."""
    found: list[Any] = []
    look = DeadlockDetector._deadlock

    def noted(self: DeadlockDetector, *args: Any, **options: Any) -> Any:
        cycle = yield from look(self, *args, **options)
        found.append(cycle)
        return cycle

    monkeypatch.setattr(DeadlockDetector, "_deadlock", noted)
    return found
