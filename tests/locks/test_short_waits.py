"""A wait that is shorter than the server's answer ends with that answer, and not later."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from distlock import zk_lock, zk_semaphore
from distlock.contenders import grant, semaphore
from distlock.contenders.contender import QueuedContender
from distlock.session import patience
from tests.inspection.tools import stand
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries, pass_time
from tests.kit.tools import (
    PATIENCE,
    MakeOwner,
    Owner,
    Tree,
    await_connection,
    held_back,
    settle,
)
from tests.locks.test_lock import RECIPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from pytest_django import Settings

    from distlock.session.session import Session
    from distlock_chaos.proxy import TcpProxy

pytestmark = pytest.mark.usefixtures("tree", "_nothing_else_wakes")

#: Over before any answer; and longer than most answers take.
SHORT, LONGER = 0.001, 0.5


@pytest.fixture
def _nothing_else_wakes(two_sessions: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(two_sessions.DISTLOCK["default"], "CONNECT_TIMEOUT", 3600.0)
    monkeypatch.setattr(patience, "ANSWER_SECONDS", 3600.0)
    monkeypatch.setattr(patience, "LOOK_SECONDS", 3600.0)
    for module in (grant, semaphore):  # nor do heartbeats
        monkeypatch.setattr(module, "remind", lambda _: None)
    monkeypatch.setattr(QueuedContender, "deadline_renewed", lambda _: None)


@contextmanager
def comes_too_late(
    session: Session, waiter: Owner, acquire: Callable[..., Any], timeout: float
) -> Iterator[Future[Any]]:
    """Let nothing be known of a call until its time is over."""
    with held_back(session):
        before = beneficiaries(session)
        got = waiter.submit(acquire, timeout=timeout)
        eventually(lambda: got.done() or beneficiaries(session) > before, PATIENCE)
        yield got
        pass_time(timeout + 0.01)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_call_whose_time_is_over_before_the_answer_ends_with_it(
    recipe: str, make_owner: MakeOwner
) -> None:
    holder, waiter = make_owner(), make_owner()
    theirs = RECIPES["write" if recipe == "read" else recipe](using="other")
    assert holder.now(theirs.acquire)
    with comes_too_late(await_connection(), waiter, RECIPES[recipe]().acquire, SHORT) as got:
        pass
    assert got.result(PATIENCE) is False
    holder.now(theirs.release)


def test_the_answer_may_come_while_a_caller_looks_for_it(
    tree: Tree, make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the end of its time, and the look after it."""
    waiter, session = make_owner(), await_connection()
    theirs = stand(tree, "key")  # one who writes no notes
    rest = patience.Patience.rest
    looks = 0

    def slow(self: patience.Patience, *args: Any, **how: Any) -> float:
        nonlocal looks
        looks += 1
        if looks == 1:
            settle(session)
            eventually(lambda: time.monotonic() > self.deadline, PATIENCE)
        return rest(self, *args, **how)

    monkeypatch.setattr(patience.Patience, "rest", slow)
    assert waiter.submit(zk_lock("key").acquire, timeout=LONGER).result(PATIENCE) is False
    assert looks > 1
    tree.client.delete(theirs)


@pytest.mark.parametrize("recipe", ["mutex", "unfair", "write", "handoff", "semaphore"])
def test_the_answer_may_come_with_a_new_connection(
    recipe: str, patient_link: TcpProxy, make_owner: MakeOwner
) -> None:
    holder, waiter = make_owner(), make_owner()
    theirs = RECIPES[recipe](using="other")
    assert holder.now(theirs.acquire)
    session = await_connection()
    before = beneficiaries(session)
    got = waiter.submit(RECIPES[recipe]().acquire, timeout=LONGER)
    eventually(lambda: beneficiaries(session) > before, PATIENCE)
    settle(session)
    patient_link.cut()
    pass_time(LONGER)
    patient_link.pass_through()
    assert got.result(PATIENCE) is False
    holder.now(theirs.release)


def test_the_turn_of_a_waiter_may_go_to_another_process_meanwhile(
    tree: Tree, make_owner: MakeOwner
) -> None:
    holder, waiter, rival = make_owner(), make_owner(), make_owner()
    lock, theirs = zk_lock("key", handoff=1), zk_lock("key", using="other")
    assert holder.now(lock.acquire)
    rivals = rival.submit(theirs.acquire, timeout=PATIENCE)
    tree.await_line("key", 2)
    with comes_too_late(await_connection(), waiter, lock.acquire, LONGER) as got:
        holder.now(lock.release)
    assert rivals.result(PATIENCE)
    assert got.result(PATIENCE) is False
    rival.now(theirs.release)


def test_who_only_passes_through_the_queue_of_a_semaphore_keeps_nobody_out(
    tree: Tree, make_owner: MakeOwner
) -> None:
    some, waiter = zk_semaphore("key", 2), make_owner()
    first = stand(tree, "key", under="/locks")
    session = await_connection()
    with comes_too_late(session, waiter, some.acquire, SHORT) as got:
        pass
    eventually(lambda: len(tree.children(first.rpartition("/")[0])) == 2, PATIENCE)
    settle(session)
    assert not got.done()
    tree.client.delete(first)
    assert got.result(PATIENCE)
    waiter.now(some.release)
