"""A contender hears of its session from its first answer on, until its caller has left for good."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from distlock.contenders.contender import QueuedContender
from distlock.contenders.semaphore import SemaphoreContender
from distlock.queue.policies import MUTEX
from distlock.queue.semaphore import Limit
from tests.kit.fake_session import LINE, FakeSession, Tree

KINDS: dict[str, Any] = {
    "mutex": partial(QueuedContender, policy=MUTEX),
    "semaphore": partial(SemaphoreContender, limit=Limit("stock:42", 1)),
}


@pytest.fixture
def session() -> FakeSession:
    return FakeSession(Tree())


@pytest.fixture(params=KINDS)
def contender(request: pytest.FixtureRequest, session: FakeSession) -> Any:
    return KINDS[request.param](session, LINE, key="stock:42", data=b"", settled=lambda: None)


def test_a_contender_that_joins_hears_of_no_heartbeat_yet(
    session: FakeSession, contender: QueuedContender | SemaphoreContender
) -> None:
    """Its caller may be applying `Join` in another thread."""
    session.connection += 1
    contender.deadline_renewed()
    assert not session.tree.sent
