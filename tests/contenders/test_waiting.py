"""An attempt waits as long as its time, its contender and its session allow."""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from distlock import LockBusy, zk_lock
from distlock.contenders import waiting
from distlock.contenders.batch import BatchMember
from distlock.contenders.contender import QueuedContender
from distlock.contenders.waiting import Attempt
from distlock.queue.policies import MUTEX
from distlock.session.programs import LOOK_SECONDS
from tests.kit import fake_session
from tests.kit.tools import await_connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.tools import Owner, Tree


class Double(SimpleNamespace):
    """A contender that does nothing by itself."""

    def __init__(self, settled: Callable[[], None]) -> None:
        session = SimpleNamespace(
            disconnected_at=None,
            over=False,
            timeout=10,
            conf=SimpleNamespace(connect_timeout=5),
            unavailable=ConnectionError,
            when_connected=lambda step: step(),
        )
        super().__init__(
            settled=settled,
            session=session,
            key="key",
            node="node",
            granted=False,
            lost=False,
            left=False,
            error=None,
            ahead=None,
            was_in_line=False,
            asked_at=time.monotonic(),
            joined=0,
            departures=0,
        )

    def join(self) -> None:
        self.joined += 1

    def leave(self) -> None:
        self.departures += 1


CONTENDER: Any = Double


@pytest.fixture(autouse=True)
def _answers_come_as_soon_as_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ANSWER_SECONDS", 0.4)


def begun(timeout: float | None) -> tuple[Attempt[Any], Any]:
    """An attempt in the queue, and its contender."""
    attempt = Attempt(CONTENDER, timeout)
    attempt.begin(lambda: None).join()
    return attempt, attempt.contender


@pytest.mark.parametrize(("timeout", "most"), [(0, 0.4), (0.2, 0.2), (60, LOOK_SECONDS)])
def test_it_waits_for_an_answer_even_if_it_only_tries(timeout: float, most: float) -> None:
    attempt, _ = begun(timeout)
    patience = attempt.patience()
    assert patience is not None
    assert 0 < patience <= most


def test_a_try_ends_when_somebody_is_ahead_and_a_wait_does_not() -> None:
    for timeout, ends in (0, True), (5, False), (None, False):
        attempt, contender = begun(timeout)
        contender.ahead = 1
        assert (attempt.patience() is None) is ends


@pytest.mark.parametrize("settled", [{"granted": True}, {"error": ValueError("refused")}])
def test_it_ends_when_its_place_is_settled(settled: dict[str, Any]) -> None:
    attempt, contender = begun(None)
    vars(contender).update(settled)
    assert attempt.patience() is None


def test_a_grant_that_nobody_had_is_tried_anew_while_there_is_time() -> None:
    attempt, contender = begun(5)
    contender.granted = contender.lost = True
    assert attempt.patience() is not None
    assert contender.departures == 1
    anew: Any = attempt.contender
    assert anew is not contender
    assert anew.joined == 1


@pytest.mark.parametrize(
    "kind", [partial(QueuedContender, policy=MUTEX), partial(BatchMember, handoff=2)]
)
def test_who_joins_anew_waits_for_the_answers_again(kind: Callable[..., Any]) -> None:
    session: Any = fake_session.FakeSession(fake_session.Tree())
    session.disconnected_at, session.over, session.timeout = None, False, 10
    session.conf.connect_timeout = 5
    attempt = Attempt(partial(kind, session, fake_session.LINE, key="stock:42", data=b""), None)
    attempt.begin(lambda: None).join()
    session.tree.answer()
    attempt.contender.lose()
    assert attempt.patience() is not None
    session.tree.answer()
    assert attempt.patience() is None
    assert attempt.outcome() is not None


def test_a_grant_that_was_lost_too_late_is_none() -> None:
    attempt, contender = begun(0)
    contender.granted = contender.lost = True
    assert attempt.patience() is None
    with pytest.raises(ConnectionError):
        attempt.outcome()
    assert contender.departures == 1


def test_a_refused_place_is_left_once() -> None:
    attempt, contender = begun(0)
    contender.ahead = 1
    assert attempt.outcome() is None
    attempt.give_up()
    assert contender.departures == 1


def test_a_granted_place_is_left_only_if_the_caller_gives_up() -> None:
    attempt, contender = begun(0)
    contender.granted = True
    assert attempt.outcome() is contender.node
    assert contender.departures == 0
    attempt.give_up()
    assert contender.departures == 1


def test_to_give_up_before_the_beginning_does_nothing() -> None:
    Attempt(CONTENDER, 5).give_up()


def test_an_answer_to_a_question_ends_the_wait_for_it() -> None:
    attempt, _ = begun(0)
    answers: list[Callable[..., None]] = []
    asking = attempt.ask(answers.append)
    assert 0 < next(asking) <= 0.4
    answers[0]("answer", None)
    with pytest.raises(StopIteration) as end:
        next(asking)
    assert end.value.value == "answer"


def test_a_question_is_not_waited_for_beyond_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ANSWER_SECONDS", 0)
    attempt, _ = begun(0)
    with pytest.raises(StopIteration) as end:
        next(attempt.ask(lambda _: None))
    assert end.value.value is None


def test_a_refused_block_deletes_its_node_once(
    tree: Tree, holder: Owner, requests: list[str]
) -> None:
    await_connection()
    with pytest.raises(LockBusy, match="held by"), zk_lock("key", timeout=0):
        pass
    tree.await_line("key", 1)
    assert requests.count("Delete") == 1
    assert holder.now(lambda: zk_lock("key", using="other").held)
