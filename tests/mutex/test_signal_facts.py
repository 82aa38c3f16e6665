"""What all signals carry: the key, the alias, and the template; and the one of an error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from distlock import (
    DeadlockDetected,
    LockUnavailable,
    Mutex,
    lock_acquired,
    lock_contended,
    lock_failed,
    lock_lost,
    lock_released,
    zk_lease,
    zk_lock,
    zk_locked,
    zk_rwlock,
    zk_semaphore,
)
from distlock.lease.persistent import PersistentLease
from distlock.locks.semaphore import Semaphore
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, expire
from tests.mutex.test_signals_and_looking import received

if TYPE_CHECKING:
    from distlock_chaos.proxy import TcpProxy
    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("tree")

ALL = (lock_acquired, lock_contended, lock_failed, lock_lost, lock_released)


def test_a_decorated_function_is_known_by_its_template() -> None:
    @zk_locked("stock:<sku>", using="other")
    def deduct(sku: int) -> None:
        assert sku == 42

    with received(*ALL) as said:
        deduct(42)
    assert [signal for signal, _ in said] == [lock_acquired, lock_released]
    for _, facts in said:
        assert (facts["key"], facts["using"]) == ("stock:42", "other")
        assert facts["template"] == facts["hold"].template == "stock:<sku>"
        assert facts["hold"].using == "other"


@pytest.mark.usefixtures("holder")
def test_a_decorated_coroutine_that_is_refused_is_known_by_its_template() -> None:
    @zk_locked("<name>", timeout=0, on_busy="skip")
    async def work(name: str) -> None:
        raise AssertionError(name)

    with received(*ALL) as said:
        asyncio.run(work("key"))
    ((signal, facts),) = said
    assert signal is lock_contended
    assert (facts["key"], facts["using"], facts["template"]) == ("key", "default", "<name>")


def test_all_other_locks_have_no_template() -> None:
    semaphore, lease = zk_semaphore("mail", 2, using="other"), zk_lease("export", 60)
    with received(*ALL) as said, zk_lock("key"), semaphore, lease:
        pass
    assert {(facts["sender"], facts["key"], facts["using"]) for _, facts in said} == {
        (Mutex, "key", "default"),
        (Semaphore, "mail", "other"),
        (PersistentLease, "export", "default"),
    }
    assert {facts["template"] for _, facts in said} == {""}
    assert len(said) == 6


def test_a_loss_is_known_by_its_template(zookeeper: ZooKeeper) -> None:
    @zk_locked("stock:<sku>")
    def deduct(sku: int) -> None:
        assert sku == 42
        expire(zookeeper.hosts, session_for())
        eventually(lambda: said[-1][0] is lock_lost, PATIENCE, "the news of the loss")

    with received(lock_acquired, lock_lost) as said, pytest.raises(Exception, match="lost"):
        deduct(42)
    facts = said[-1][1]
    assert (facts["key"], facts["using"], facts["template"]) == (
        "stock:42",
        "default",
        "stock:<sku>",
    )
    assert facts["hold"].lost


@pytest.mark.parametrize("sender", [Mutex, Semaphore, PersistentLease])
def test_an_error_is_announced_once(broken_link: TcpProxy, sender: type) -> None:
    locks: dict[type, Any] = {
        Mutex: zk_lock("key"),
        Semaphore: zk_semaphore("key", 1),
        PersistentLease: zk_lease("key", 60),
    }
    broken_link.cut()
    with received(*ALL) as said, pytest.raises(LockUnavailable) as raised, locks[sender]:
        pass
    ((signal, facts),) = said
    assert signal is lock_failed
    assert facts["sender"] is sender
    assert (facts["key"], facts["using"], facts["template"]) == ("key", "default", "")
    assert facts["error"] is raised.value
    assert facts["waited"] > 0.5  # CONNECT_TIMEOUT is 1, from the loss on


def test_what_was_refused_before_it_was_asked_for_is_not_announced() -> None:
    lock = zk_rwlock("key")
    with lock.read, received(*ALL) as said, pytest.raises(DeadlockDetected):
        lock.write.acquire()
    assert said == []
