"""An attempt waits as long as its time, its contender and its session allow."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from distlock import LockBusy, zk_lock
from distlock.contenders.batch import BatchMember
from distlock.contenders.contender import QueuedContender
from distlock.contenders.waiting import Attempt
from distlock.queue.policies import MUTEX
from distlock.session import patience
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, await_connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock_chaos.proxy import TcpProxy
    from tests.kit.tools import Owner, Tree


@pytest.fixture(autouse=True)
def _answers_come_as_soon_as_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ANSWER_SECONDS", 0.4)


@pytest.mark.parametrize(
    "kind", [partial(QueuedContender, policy=MUTEX), partial(BatchMember, handoff=2)]
)
def test_whose_grant_is_lost_at_once_joins_anew(tree: Tree, kind: Callable[..., Any]) -> None:
    session = await_connection()
    line = partial(kind, session, tree.path("key"), key="key", data=b'{"v":1}')
    attempt = Attempt(session, "key", None, line)
    attempt.begin(lambda: None).join()
    eventually(lambda: attempt.contender.granted, PATIENCE)
    attempt.contender.lose()
    eventually(lambda: attempt.patience() is None, PATIENCE)
    assert attempt.outcome() is not None
    attempt.give_up()
    tree.await_line("key", 0)


def test_a_contender_that_joins_hears_of_no_heartbeat_yet(tree: Tree, requests: list[str]) -> None:
    """Its caller may be applying `Join` in another thread."""
    session, path = await_connection(), tree.path("key")
    options: Any = {"key": "key", "data": b"", "settled": lambda: None}
    contender = QueuedContender(session, path, policy=MUTEX, **options)
    requests.clear()
    contender.deadline_renewed()
    assert not contender._attends
    assert not requests


def test_a_contender_that_joins_in_an_outage_hears_of_no_heartbeat_yet(
    tree: Tree, broken_link: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outage ends before its caller is done, who then finds that there is a connection."""
    session, told = await_connection(), threading.Event()
    options: Any = {"key": "key", "data": b"", "settled": lambda: None}
    contender = QueuedContender(session, tree.path("key"), policy=MUTEX, **options)
    soon = session.soon

    def be_slow(step: Callable[[], None]) -> None:
        monkeypatch.setattr(session, "soon", soon)
        soon(step)
        broken_link.pass_through()
        eventually(lambda: contender._attends, PATIENCE)
        soon(contender.deadline_renewed)
        soon(told.set)
        assert told.wait(PATIENCE)

    broken_link.cut()
    eventually(lambda: not session.connected, PATIENCE)
    monkeypatch.setattr(session, "soon", be_slow)
    contender.join()
    assert told.is_set()
    eventually(lambda: contender.granted, PATIENCE)
    contender.leave()
    tree.await_line("key", 0)


def test_a_refused_block_deletes_its_node_once(
    tree: Tree, holder: Owner, requests: list[str]
) -> None:
    await_connection()
    with pytest.raises(LockBusy, match="held by"), zk_lock("key", timeout=0):
        pass
    tree.await_line("key", 1)
    assert requests.count("Delete") == 1
    assert holder.now(lambda: zk_lock("key", using="other").held)
