"""Between the loss of a connection and the end of the hold, the holder is at risk (C24)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from distlock import (
    LockLost,
    lock_at_risk,
    lock_lost,
    lock_released,
    lock_safe,
    zk_leader,
    zk_lease,
    zk_lock,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions
from tests.kit.tools import PATIENCE, MakeOwner, Owner, await_connection
from tests.mutex.test_signals_and_looking import received

KEY = "key"
CHANGES = (lock_at_risk, lock_safe, lock_lost, lock_released)

RECIPES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "mutex": lambda: zk_lock(KEY),
    "unfair": lambda: zk_lock(KEY, fair=False),
    "batch": lambda: zk_lock(KEY, handoff=2),
    "reader": lambda: zk_rwlock(KEY).read,
    "writer": lambda: zk_rwlock(KEY).write,
    "semaphore": lambda: zk_semaphore(KEY, 2),
    "semaphore mutex": lambda: zk_semaphore_mutex(KEY),
    "multi-lock": lambda: zk_multilock(KEY),
    "leader": lambda: zk_leader(KEY),
}


@pytest.fixture
def link(broken_link: TcpProxy, set_options: SetOptions) -> TcpProxy:
    """A link whose holds survive a cut of some seconds, however busy the machine is."""
    set_options(SESSION_TIMEOUT=15, CONNECT_TIMEOUT=PATIENCE)
    await_connection()
    return broken_link


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_hold_is_at_risk_without_a_connection_and_safe_with_the_next(
    link: TcpProxy, recipe: str
) -> None:
    with received(*CHANGES) as said:
        with RECIPES[recipe]() as given:
            hold = given[0] if isinstance(given, tuple) else given
            assert not hold.at_risk
            link.cut()
            eventually(lambda: said, PATIENCE, "the news of the risk")
            assert hold.at_risk
            assert not hold.lost
            assert hold.valid_for() > 0
            hold.check()
            link.pass_through()
            eventually(lambda: said[1:], PATIENCE, "the news that all is well")
            assert not hold.at_risk
            hold.check()
        assert [signal for signal, _ in said] == [lock_at_risk, lock_safe, lock_released]
        assert all(facts["hold"] is hold for _, facts in said)
    assert not hold.at_risk


def test_a_connection_alone_does_not_make_a_hold_safe(link: TcpProxy) -> None:
    with received(*CHANGES) as said, zk_lock(KEY) as hold:
        session = hold._grant.session
        prove = session.heartbeat._send
        session.heartbeat._send = lambda _: None
        link.cut()
        eventually(lambda: hold.at_risk, PATIENCE)
        link.pass_through()
        eventually(lambda: session.connected, PATIENCE)
        assert hold.at_risk
        session.heartbeat._send, session.heartbeat._unanswered_since = prove, None
        session.heartbeat.hurry()
        eventually(lambda: not hold.at_risk, PATIENCE)
        eventually(lambda: said[1:], PATIENCE)
        assert [signal for signal, _ in said] == [lock_at_risk, lock_safe]


def test_a_hold_that_was_at_risk_too_long_is_lost_and_never_safe(
    broken_link: TcpProxy,
) -> None:
    with received(*CHANGES) as said:
        with pytest.raises(LockLost) as raised, zk_lock(KEY) as hold:  # noqa: PT012
            broken_link.cut()
            eventually(lambda: hold.lost, PATIENCE)
            assert not hold.at_risk
            eventually(lambda: said[1:], PATIENCE)
            broken_link.pass_through()
            eventually(lambda: hold._grant.session.connected, PATIENCE)
            eventually(lambda: not hold._grant.session.deadline.at_risk, PATIENCE)
        assert raised.value.reason == hold.lost_reason == "session"
        assert [signal for signal, _ in said] == [lock_at_risk, lock_lost, lock_released]
        assert said[1][1]["reason"] == "session"


def test_a_hold_that_is_released_at_risk_is_not_said_to_be_safe(link: TcpProxy) -> None:
    lock = zk_lock(KEY)
    with received(*CHANGES) as said:
        assert lock.acquire()
        link.cut()
        eventually(lambda: said, PATIENCE)
        lock.release()
        link.pass_through()
        with zk_lock("another"):
            pass
        assert [signal for signal, facts in said if facts["key"] == KEY] == [
            lock_at_risk,
            lock_released,
        ]


def test_one_who_waits_is_not_at_risk(link: TcpProxy, holder: Owner, make_owner: MakeOwner) -> None:
    waiter, lock = make_owner(), zk_lock(KEY)
    with received(*CHANGES) as said:
        granted = waiter.submit(lock.acquire, timeout=PATIENCE)
        eventually(session_for().heartbeat.beneficiaries, PATIENCE)
        link.cut()
        eventually(lambda: session_for().disconnected_at is not None, PATIENCE)
        link.pass_through()
        holder.now(zk_lock(KEY, using="other").release)
        assert granted.result(PATIENCE)
        waiter.now(lock.release)
    assert lock_at_risk not in [signal for signal, _ in said]


def test_a_lease_is_at_risk_without_a_connection(link: TcpProxy) -> None:
    lease = zk_lease(KEY, ttl=60, owner="task-7")
    with zk_lock("another"), lease as hold:
        assert not hold.at_risk
        link.cut()
        eventually(lambda: hold.at_risk, PATIENCE)
        hold.check()
        link.pass_through()
        eventually(lambda: not hold.at_risk, PATIENCE)
    assert not hold.at_risk
