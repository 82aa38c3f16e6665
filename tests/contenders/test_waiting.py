"""An attempt waits as long as its time, its contender and its session allow."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from distlock import LockBusy, zk_lock
from distlock.contenders.batch import BatchMember
from distlock.contenders.contender import QueuedContender
from distlock.contenders.waiting import Attempt
from distlock.queue.policies import MUTEX
from distlock.session import patience
from tests.kit import fake_session
from tests.kit.tools import await_connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.tools import Owner, Tree


@pytest.fixture(autouse=True)
def _answers_come_as_soon_as_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ANSWER_SECONDS", 0.4)


@pytest.mark.parametrize(
    "kind", [partial(QueuedContender, policy=MUTEX), partial(BatchMember, handoff=2)]
)
def test_who_joins_anew_waits_for_the_answers_again(kind: Callable[..., Any]) -> None:
    session: Any = fake_session.FakeSession(fake_session.Tree())
    session.disconnected_at, session.over, session.timeout = None, False, 10
    session.conf.connect_timeout = 5
    contender_for = partial(kind, session, fake_session.LINE, key="stock:42", data=b"")
    attempt = Attempt(session, "stock:42", None, contender_for)
    attempt.begin(lambda: None).join()
    session.tree.answer()
    attempt.contender.lose()
    assert attempt.patience() is not None
    session.tree.answer()
    assert attempt.patience() is None
    assert attempt.outcome() is not None


def test_a_refused_block_deletes_its_node_once(
    tree: Tree, holder: Owner, requests: list[str]
) -> None:
    await_connection()
    with pytest.raises(LockBusy, match="held by"), zk_lock("key", timeout=0):
        pass
    tree.await_line("key", 1)
    assert requests.count("Delete") == 1
    assert holder.now(lambda: zk_lock("key", using="other").held)
