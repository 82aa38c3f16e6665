"""A ZooKeeper in memory for a block or a test case, and tools for it and for a real one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import unittest
from typing import TYPE_CHECKING, Any, cast

import pytest
from django.test import TestCase

import distlock.testing
from distlock import (
    LockBusy,
    LockLost,
    LockUnavailable,
    zk_lease,
    zk_lock,
    zk_rwlock,
    zk_semaphore,
)
from distlock.client import Client
from distlock.session import session_for
from distlock.testing import (
    CapturedLock,
    DistlockTestCase,
    assert_locked,
    captured_locks,
    expire_session,
    hold,
    lose_connection,
    memory_zookeeper,
)
from distlock.testing.memory_client import MemoryClient
from tests.helpers import eventually, spawn_python
from tests.mutex.tools import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from distlock.testing import MemoryTree

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def options(settings: Settings) -> dict[str, Any]:
    """The settings name a server that is not there."""
    options = {"HOSTS": NOWHERE, "CONNECT_TIMEOUT": 0.5, "TIMEOUT": 5, "SESSION_TIMEOUT": 4}
    settings.DISTLOCK = {"default": options, "other": options}
    return options


@pytest.fixture
def memory() -> Iterator[MemoryTree]:
    with memory_zookeeper() as tree:
        yield tree


# --- the switch ----------------------------------------------------------------------------------


def test_a_block_has_a_zookeeper_and_outside_it_there_is_none() -> None:
    with memory_zookeeper() as tree:
        assert zk_lock("key").acquire(timeout=0)
        assert tree.children("/distlock/key")
        assert isinstance(session_for()._client, MemoryClient)
    with pytest.raises(LockUnavailable):
        zk_lock("key").acquire()
    assert isinstance(session_for()._client, Client)


def test_each_block_begins_with_nothing() -> None:
    for _ in range(2):
        with memory_zookeeper():
            for lock in (zk_lock("key"), zk_semaphore("s", 1), zk_lease("lease", 60, owner="me")):
                assert not lock.locked()
                assert lock.acquire(timeout=0)
    assert not zk_lock("key").held


def test_a_chroot_is_a_part_of_the_tree(settings: Settings, options: dict[str, Any]) -> None:
    settings.DISTLOCK = {"default": {**options, "HOSTS": f"{NOWHERE}/shop"}}
    with memory_zookeeper() as tree, zk_lock("key", timeout=PATIENCE) as held:
        assert held.path.startswith("/shop/distlock/key/")
        assert tree.children("/shop") == ["distlock"]


def test_it_decorates_too() -> None:
    @memory_zookeeper()
    def locks() -> bool:
        return zk_lock("key").acquire(timeout=0)

    assert locks()
    assert locks()


@pytest.mark.usefixtures("memory")
def test_two_cannot_be_within_each_other() -> None:
    with pytest.raises(RuntimeError, match="in memory already"), memory_zookeeper():
        pass
    assert zk_lock("key").acquire(timeout=0)


@pytest.mark.usefixtures("distlock_settings")
def test_it_does_not_begin_while_locks_are_held_on_a_real_server() -> None:
    with zk_lock("key") as held:
        with pytest.raises(RuntimeError, match="holds locks at"), memory_zookeeper():
            pass
        held.verify()


def test_a_forked_child_is_told_that_the_tree_is_not_its_own() -> None:
    code = """
import os, django
django.setup()
from distlock import zk_lock
from distlock.testing import memory_zookeeper
with memory_zookeeper():
    zk_lock("key").acquire()
    if os.fork() == 0:
        try:
            zk_lock("key").acquire()
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()
"""
    with spawn_python(code) as process:
        assert process.stdout is not None
        assert "Use a real server" in process.stdout.readline()


def test_no_setting_switches_it_on() -> None:
    from distlock.conf import hosts_error  # noqa: PLC0415 - what every check of HOSTS goes by

    assert hosts_error("memory://")
    assert hosts_error("memory") is None  # a host of this name


# --- test cases ----------------------------------------------------------------------------------


def test_each_test_of_a_case_has_a_zookeeper_of_its_own_from_before_its_set_up() -> None:
    class Case(DistlockTestCase):
        def setUp(self) -> None:
            assert zk_lock("of set-up").acquire(timeout=0)

        def test_one(self) -> None:
            assert_locked("of set-up")
            assert self.zookeeper.children("/distlock")

        def test_two(self) -> None:
            assert_locked("of set-up")

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert result.testsRun == 2
    assert result.wasSuccessful(), (result.failures, result.errors)


class TestWithADatabase(DistlockTestCase, TestCase):
    """Django's test cases under pytest."""

    def setUp(self) -> None:
        assert zk_lock("of set-up").acquire(timeout=0)

    def test_it(self) -> None:
        with zk_lock("key", atomic=True):
            assert_locked("of set-up")
            assert len(assert_locked("key")) == 1


# --- somebody else -------------------------------------------------------------------------------


@pytest.mark.usefixtures("memory")
def test_somebody_else_holds_a_lock() -> None:
    with hold("key", by="the warehouse"):
        with (
            pytest.raises(LockBusy, match="held by the warehouse") as raised,
            zk_lock("key", timeout=0),
        ):
            pass
        assert str(raised.value.holder) == "the warehouse"
    assert zk_lock("key").acquire(timeout=0)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("kind", "reads", "writes"), [("read", True, False), ("write", False, False)]
)
def test_somebody_else_reads_or_writes(kind: Any, reads: bool, writes: bool) -> None:
    with hold("key", kind=kind):
        assert zk_rwlock("key").read.acquire(timeout=0) is reads
        if reads:
            zk_rwlock("key").read.release()
        assert zk_rwlock("key").write.acquire(timeout=0) is writes


@pytest.mark.usefixtures("memory")
def test_somebody_else_leaves_and_dies() -> None:
    with hold("key") as other:
        waiter = threading.Thread(target=zk_lock("key").acquire, kwargs={"timeout": None})
        waiter.start()
        other.release()
        waiter.join(PATIENCE)
        assert not waiter.is_alive()
    with hold("another") as other:
        other.die()
        assert zk_lock("another").acquire(timeout=PATIENCE)


@pytest.mark.usefixtures("memory")
def test_nobody_else_can_hold_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distlock.testing.tools.PATIENCE", 0.1)
    with (
        zk_lock("key"),
        pytest.raises(LockBusy, match="begin hold\\(\\) before"),
        hold("key"),
    ):
        pass


@pytest.mark.usefixtures("memory")
def test_a_kind_that_is_none_is_refused() -> None:
    kind: Any = "lease"
    with pytest.raises(ValueError, match="lock, read, write"), hold("key", kind=kind):
        pass


@pytest.mark.usefixtures("distlock_settings")
def test_somebody_else_holds_on_a_real_server() -> None:
    with hold("key", by="elsewhere"):
        assert not zk_lock("key").acquire(timeout=0)
        (holder,) = assert_locked("key")
        assert str(holder.participant) == "elsewhere"
    assert zk_lock("key").acquire(timeout=PATIENCE)
    zk_lock("key").release()


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("memory")
def test_a_hold_is_lost_when_its_session_has_expired() -> None:
    with pytest.raises(LockLost), zk_lock("key") as held, captured_locks() as locks:  # noqa: PT012
        expire_session()
        assert held.lost
        eventually(lambda: locks.keys("lost") == ["key"], PATIENCE)
        assert session_for().connected
    assert zk_lock("key").acquire(timeout=0)


@pytest.mark.usefixtures("distlock_settings")
def test_a_session_on_a_real_server_expires() -> None:
    with pytest.raises(LockLost), zk_lock("key") as held:  # noqa: PT012
        expire_session()
        assert held.lost
    assert zk_lock("key").acquire(timeout=PATIENCE)
    zk_lock("key").release()


@pytest.mark.usefixtures("memory")
def test_a_session_expires_while_it_is_cut_off() -> None:
    with pytest.raises(LockLost), zk_lock("key") as held:  # noqa: PT012
        with lose_connection():
            expire_session()
            assert zk_lock("key", using="other").acquire(timeout=0)
        assert held.lost
    zk_lock("key", using="other").release()


@pytest.mark.usefixtures("memory")
def test_a_short_loss_of_the_connection_keeps_what_is_held() -> None:
    with zk_lock("key") as held:
        with lose_connection():
            assert not session_for().connected
            with pytest.raises(LockUnavailable):
                zk_lock("another").acquire()
        held.verify()


@pytest.mark.usefixtures("memory")
def test_a_long_loss_of_the_connection_ends_the_session(
    settings: Settings, options: dict[str, Any]
) -> None:
    settings.DISTLOCK = {"default": {**options, "SESSION_TIMEOUT": 0.3}, "other": options}
    with pytest.raises(LockLost), zk_lock("key") as held, lose_connection():  # noqa: PT012
        assert zk_lock("key", using="other").acquire(timeout=PATIENCE)
        assert held.lost
    zk_lock("key", using="other").release()


def test_a_create_whose_reply_is_lost_is_found_and_used(memory: MemoryTree) -> None:
    with zk_lock("warm-up"):
        cast("MemoryClient", session_for()._client).lose_next_reply()
        with zk_lock("key"):
            assert len(memory.children("/distlock/key")) == 1
    eventually(lambda: not memory.children("/distlock/key"), PATIENCE)


@pytest.mark.usefixtures("distlock_settings")
def test_the_connection_to_a_real_server_is_not_ours_to_lose() -> None:
    with pytest.raises(RuntimeError, match="TcpProxy"), lose_connection():
        pass


# --- sequence numbers ----------------------------------------------------------------------------


def test_the_line_keeps_its_order_when_the_servers_counter_wraps(memory: MemoryTree) -> None:
    with zk_lock("key"):
        memory.count_from("/distlock/key", 2**31 - 2)
        served: list[int] = []

        def wait(number: int) -> None:
            with zk_lock("key", using="other", timeout=None):
                served.append(number)

        threads = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
        for length, thread in enumerate(threads, start=2):
            thread.start()
            await_line(memory, length)
        assert any("lock--" in name for name in memory.children("/distlock/key"))
    for thread in threads:
        thread.join(PATIENCE)
    assert served == [0, 1, 2, 3, 4]


def await_line(memory: MemoryTree, length: int) -> None:
    eventually(lambda: len(memory.children("/distlock/key")) == length, PATIENCE)


# --- what is locked ------------------------------------------------------------------------------


@pytest.mark.usefixtures("memory")
def test_a_lock_that_is_held_is_found() -> None:
    with zk_lock("lock"), zk_semaphore("semaphore", 2), zk_lease("lease", 60):
        for key in ("lock", "semaphore", "lease"):
            assert len(assert_locked(key)) == 1


@pytest.mark.usefixtures("memory")
def test_a_misspelt_key_fails_with_those_that_are_held() -> None:
    with zk_lock("stock:42"), zk_lock("cart:7"), pytest.raises(AssertionError) as raised:
        assert_locked("stok:42")
    assert str(raised.value) == (
        "Nobody holds 'stok:42'. Did you mean 'stock:42'? Held are: 'cart:7', 'stock:42'."
    )
    with pytest.raises(AssertionError, match="No lock is held at all"):
        assert_locked("stock:42")


@pytest.mark.usefixtures("memory")
def test_what_a_block_takes_is_recorded() -> None:
    with hold("busy"), captured_locks() as locks:
        with zk_lock("a"), zk_lock("a"), zk_semaphore("b", 1):
            assert not zk_lock("busy").acquire(timeout=0)
        with lose_connection(), pytest.raises(LockUnavailable):
            zk_lock("c").acquire()
    assert zk_lock("later").acquire(timeout=0)
    assert locks.keys() == ["a", "b"]
    assert locks.keys("busy") == ["busy"]
    assert [type(one.error) for one in locks if one.outcome == "failed"] == [LockUnavailable]
    assert isinstance(locks[0], CapturedLock)


@pytest.mark.usefixtures("memory")
def test_tasks_use_it_too() -> None:
    async def locks() -> int:
        async def one() -> None:
            async with zk_lock("key", timeout=None):
                await asyncio.sleep(0)

        await asyncio.gather(*(one() for _ in range(50)))
        return threading.active_count()

    assert asyncio.run(locks()) < 20


# --- the package ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", distlock.testing.__all__)
def test_every_public_name_has_a_docstring_of_its_own(name: str) -> None:
    value = getattr(distlock.testing, name)
    assert value.__doc__


def test_a_name_that_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(distlock.testing, "nothing")  # noqa: B009 - the type checker knows it, too


def test_importing_it_imports_neither_pytest_nor_the_rest() -> None:
    code = (
        "import sys, distlock.testing\n"
        "print([name for name in ('pytest', 'unittest', 'distlock.testing.tools') "
        "if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
