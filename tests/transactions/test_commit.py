"""``atomic=`` commits before it releases, seen from another connection to PostgreSQL (promise 9).

A gate in the database stops COMMIT half-way, so "before" is not a matter of speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction

from distlock import LockBusy, LockInTransaction, zk_lock, zk_locked
from tests.kit.helpers import eventually
from tests.testproject.database import ProjectDatabase
from tests.testproject.elsewhere import in_line
from tests.testproject.models import Counter
from tests.transactions.conftest import ALIAS

pytestmark = pytest.mark.usefixtures("distlock_settings", "alias")


def increment(name: str) -> int:
    """Read, decide, write: what it has read."""
    counter = Counter.objects.using(ALIAS).get(name=name)
    counter.value += 1
    counter.save(using=ALIAS)
    return counter.value - 1


def in_thread(work: Callable[[str], int], name: str) -> int:
    try:
        return work(name)
    finally:
        connections[ALIAS].close()


def locked_block(name: str) -> int:
    with zk_lock(f"counter:{name}", atomic=ALIAS):
        return increment(name)


@zk_locked("counter:<name>", atomic=ALIAS)
def locked_function(name: str) -> int:
    return increment(name)


both = pytest.mark.parametrize("work", [locked_block, locked_function], ids=["block", "function"])


@both
def test_the_lock_is_held_until_commit_is_done(database: ProjectDatabase, work: Any) -> None:
    name = database.make_counter()
    with ThreadPoolExecutor(1) as pool:
        with database.gate_shut():
            working = pool.submit(in_thread, work, name)
            database.await_commit_begun()
            with pytest.raises(LockBusy):
                zk_lock(f"counter:{name}", timeout=0).__enter__()
            assert database.value(name) == 0
        assert working.result(10) == 0
    assert database.value(name) == 1


def test_a_commit_that_fails_raises_and_releases(database: ProjectDatabase) -> None:
    name = database.make_counter()

    def work() -> None:
        with zk_lock(f"counter:{name}", atomic=ALIAS):
            increment(name)
            connections[ALIAS].connection.close()  # the server or the network, in real life

    with pytest.raises(Exception, match="closed"):
        work()
    assert database.value(name) == 0
    assert not zk_lock(f"counter:{name}").held
    eventually(lambda: in_line(f"counter:{name}") == 0)


@pytest.fixture
def manual(alias: None) -> Iterator[None]:  # noqa: ARG001 - the database, first
    """The site begins and ends its transactions itself."""
    transaction.set_autocommit(False, using=ALIAS)
    try:
        yield
    finally:
        transaction.rollback(using=ALIAS)
        transaction.set_autocommit(True, using=ALIAS)


@pytest.mark.usefixtures("manual")
def test_a_transaction_that_no_atomic_block_has_opened_counts(database: ProjectDatabase) -> None:
    name = database.make_counter()
    increment(name)
    with pytest.raises(LockInTransaction, match=f"database '{ALIAS}'"):
        zk_lock("stock:42").acquire()
    transaction.commit(using=ALIAS)
    with zk_lock("stock:42"):
        increment(name)
        transaction.commit(using=ALIAS)
    assert database.value(name) == 2


@pytest.mark.usefixtures("manual")
def test_a_transaction_that_has_failed_counts_until_it_is_rolled_back() -> None:
    with pytest.raises(DatabaseError):
        Counter.objects.using(ALIAS).raw("SELECT nonsense")[0]
    with pytest.raises(LockInTransaction):
        zk_lock("stock:42").acquire()
    transaction.rollback(using=ALIAS)
    with zk_lock("stock:42"):
        pass


@pytest.mark.usefixtures("manual")
def test_a_block_that_leaves_the_transaction_open_counts(database: ProjectDatabase) -> None:
    with transaction.atomic(using=ALIAS):
        increment(database.make_counter())
    with pytest.raises(LockInTransaction):
        zk_lock("stock:42").acquire()


@pytest.mark.usefixtures("manual")
def test_a_connection_that_is_gone_has_no_transaction(database: ProjectDatabase) -> None:
    increment(database.make_counter())
    connections[ALIAS].connection.close()
    try:
        with zk_lock("stock:42"):
            pass
    finally:
        connections[ALIAS].close()


def test_a_driver_that_cannot_tell_may_have_a_transaction_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections[ALIAS].ensure_connection()
    with monkeypatch.context() as other_driver:
        other_driver.setattr(connections[ALIAS], "connection", object())
        with zk_lock("stock:42"):
            pass
        other_driver.setattr(connections[ALIAS], "autocommit", False)
        with pytest.raises(LockInTransaction):
            zk_lock("stock:42").acquire()


def test_an_open_transaction_on_any_database_counts() -> None:
    with (
        transaction.atomic(using=ALIAS),
        pytest.raises(LockInTransaction, match=f"database '{ALIAS}'"),
    ):
        zk_lock("stock:42").acquire()


@both
def test_an_exception_rolls_back_and_releases(
    database: ProjectDatabase, monkeypatch: pytest.MonkeyPatch, work: Any
) -> None:
    name = database.make_counter()

    def fail(name: str, write: Any = increment) -> int:
        write(name)
        raise ZeroDivisionError

    monkeypatch.setitem(globals(), "increment", fail)
    with pytest.raises(ZeroDivisionError):
        work(name)
    assert database.value(name) == 0
    eventually(lambda: in_line(f"counter:{name}") == 0)
