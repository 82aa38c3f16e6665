"""A lock that is taken inside a transaction and kept until its end (``until="commit"``).

Django runs what was passed to `on_commit` after a COMMIT, and tells nobody of a ROLLBACK: the tests
break if it ends a transaction by other methods than those that distlock stands before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, TestCase
from pytest_django import Settings

from distlock import (
    LockInTransaction,
    LockLost,
    lock_released,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
)
from distlock.locks.mutex import Mutex
from distlock.middleware import DistlockMiddleware
from distlock.owner.hold import grant_of
from tests.kit.helpers import eventually
from tests.testproject.database import ProjectDatabase
from tests.testproject.elsewhere import in_line
from tests.testproject.models import Counter
from tests.transactions.conftest import ALIAS
from tests.transactions.test_commit import in_thread, increment

KEY = "stock:42"

pytestmark = pytest.mark.usefixtures("distlock_settings")
with_database = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_stays(distlock_settings: Settings) -> Iterator[None]:
    del distlock_settings  # the servers are there until after this
    yield
    eventually(lambda: in_line(KEY) == 0)
    assert not {"commit", "set_autocommit"} & set(connections["default"].__dict__)


def until(**how: Any) -> Any:
    return zk_lock(KEY, until="commit", **how)


LOCKS: dict[str, Callable[[], Any]] = {
    "mutex": until,
    "template": lambda: zk_lock("stock:<sku>", sku=42, until="commit"),
    "read": lambda: zk_rwlock(KEY, until="commit").read,
    "write": lambda: zk_rwlock(KEY, until="commit").write,
    "several": lambda: zk_multilock(KEY, "stock:43", until="commit"),
    "atomic": lambda: zk_lock(KEY, atomic=True),
}


@with_database
@pytest.mark.parametrize("kind", LOCKS)
@pytest.mark.parametrize("rolls_back", [False, True])
def test_it_is_kept_until_after_the_commit_or_rollback(kind: str, rolls_back: bool) -> None:
    with transaction.atomic():
        with LOCKS[kind]():
            Group.objects.create(name="packers")
        assert in_line(KEY) == 1
        transaction.set_rollback(rolls_back)
    eventually(lambda: in_line(KEY) == 0)
    assert Group.objects.exists() is not rolls_back
    assert connection.connection is not None  # the end was clean


@with_database
def test_the_body_that_raises_ends_with_the_transaction_that_it_rolls_back() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic(), until():
        raise ZeroDivisionError


@with_database
def test_a_rollback_to_a_savepoint_around_the_block_ends_it_and_no_other() -> None:
    with transaction.atomic():
        with zk_lock("stock:43", until="commit"):
            pass
        with transaction.atomic():
            with until(), transaction.atomic():  # a savepoint of the body does not count
                pass
            transaction.set_rollback(True)
        eventually(lambda: in_line(KEY) == 0)
        assert in_line("stock:43") == 1
    eventually(lambda: in_line("stock:43") == 0)


@with_database
def test_without_a_transaction_the_block_ends_it() -> None:
    with until():
        assert in_line(KEY) == 1


@with_database
def test_blocks_in_each_other_end_together() -> None:
    with transaction.atomic():
        with until(), until(), zk_lock(KEY):
            pass
        assert zk_lock(KEY).held
    assert not zk_lock(KEY).held


@with_database
def test_a_plain_block_around_the_transaction_outlasts_it() -> None:
    with zk_lock(KEY):
        with transaction.atomic(), until():
            pass
        assert in_line(KEY) == 1


@with_database
def test_a_lock_that_is_lost_before_the_commit_stops_it() -> None:
    with pytest.raises(LockLost), transaction.atomic():  # noqa: PT012 - the loss comes in between
        with until() as hold:
            Group.objects.create(name="packers")
        grant_of(hold).lose()
    assert not Group.objects.exists()


@with_database
def test_a_lock_that_is_lost_before_a_rollback_does_not_matter() -> None:
    with transaction.atomic():
        with until() as hold:
            pass
        grant_of(hold).lose()
        transaction.set_rollback(True)


@with_database
def test_a_commit_that_fails_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise DatabaseError

    with pytest.raises(DatabaseError), transaction.atomic():  # noqa: PT012
        with until():
            pass
        monkeypatch.setattr(connection, "_commit", fail)


@with_database
def test_a_connection_that_is_closed_ends_it() -> None:
    transaction.set_autocommit(False)
    try:
        Group.objects.create(name="packers")
        with until():
            pass
        assert in_line(KEY) == 1
        connection.close()
        eventually(lambda: in_line(KEY) == 0)
    finally:
        transaction.set_autocommit(True)


@with_database
def test_autocommit_that_is_turned_on_commits_and_ends_it() -> None:
    transaction.set_autocommit(False)
    Group.objects.create(name="packers")
    with until():
        pass
    assert in_line(KEY) == 1
    transaction.set_autocommit(True)
    assert Group.objects.exists()


@pytest.mark.usefixtures("alias")
@pytest.mark.parametrize("rolls_back", [False, True])
def test_a_receiver_of_the_release_may_use_the_database(
    database: ProjectDatabase, rolls_back: bool
) -> None:
    name = database.make_counter()

    def use(**_: Any) -> None:
        assert connections[ALIAS].get_autocommit()
        Counter.objects.using(ALIAS).get(name=name)

    lock_released.connect(use)
    try:
        with transaction.atomic(using=ALIAS):
            with zk_lock(KEY, atomic=ALIAS):
                increment(name)
            transaction.set_rollback(rolls_back, using=ALIAS)
    finally:
        lock_released.disconnect(use)
    assert increment(name) == (0 if rolls_back else 1)


@with_database
def test_who_catches_an_interruption_of_the_end_cannot_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(LockLost), transaction.atomic():  # noqa: PT012
        Group.objects.create(name="packers")
        with monkeypatch.context() as patch:
            patch.setattr(Mutex, "_leave", interrupted)
            with contextlib.suppress(KeyboardInterrupt), until():
                pass
    assert not Group.objects.exists()


@with_database
def test_a_decorated_function() -> None:
    @zk_locked("stock:<sku>", until="commit")
    def deduct(sku: int) -> int:
        return in_line(f"stock:{sku}")

    with transaction.atomic():
        assert deduct(42) == 1
        assert in_line(KEY) == 1


@with_database
def test_a_request_that_ends_inside_the_transaction_leaves_it() -> None:
    """So does an eager task."""

    @zk_locked(KEY, until="commit")
    def view(_: HttpRequest) -> HttpResponse:
        return HttpResponse()

    with transaction.atomic():
        DistlockMiddleware(view)(RequestFactory().get("/"))
        assert in_line(KEY) == 1


@with_database
def test_an_acquire_by_hand_is_refused_as_before() -> None:
    with transaction.atomic(), pytest.raises(LockInTransaction):
        zk_lock(KEY, atomic=True).acquire()


@with_database
def test_a_commit_that_django_forbids_ends_nothing() -> None:
    with transaction.atomic():
        with until():
            pass
        for end in (transaction.commit, transaction.rollback):
            with pytest.raises(transaction.TransactionManagementError):
                end()
        assert in_line(KEY) == 1


@pytest.mark.usefixtures("alias")
def test_a_connection_that_is_closed_in_the_block_keeps_nothing() -> None:
    with transaction.atomic(using=ALIAS):
        with zk_lock(KEY, atomic=ALIAS):
            connections[ALIAS].close()
        assert not zk_lock(KEY).held


@with_database
@pytest.mark.parametrize("inner", [lambda lock: lock, lambda lock: lock.attempt(timeout=0)])
def test_a_savepoint_that_is_refused_takes_no_count_of_an_outer_block(
    monkeypatch: pytest.MonkeyPatch, inner: Callable[[Any], Any]
) -> None:
    def refuse(_: str) -> None:
        raise DatabaseError

    with zk_lock(KEY):
        with transaction.atomic(), monkeypatch.context() as patch:
            patch.setattr(connections["default"], "savepoint_commit", refuse)
            with contextlib.suppress(DatabaseError), inner(zk_lock(KEY, atomic=True)):
                pass
        assert zk_lock(KEY).held


def test_it_needs_a_block_and_a_thread() -> None:
    with pytest.raises(TypeError, match="with lock"):
        until().acquire()
    with pytest.raises(ValueError, match="block"):
        zk_lock(KEY, until="rollback")  # type: ignore[arg-type]

    async def main() -> None:
        async with until():
            raise AssertionError("never here")

    with pytest.raises(TypeError, match="async"):
        asyncio.run(main())


class InATestCase(TestCase):
    """Django's own class, whose every test runs inside a transaction."""

    def test_the_end_of_the_outermost_block_of_the_test_stands_for_the_commit(self) -> None:
        with transaction.atomic():
            with transaction.atomic(), until():
                pass
            assert in_line(KEY) == 1
        eventually(lambda: in_line(KEY) == 0)


# --- in PostgreSQL -------------------------------------------------------------------------------


def in_open_transaction(name: str) -> int:
    with transaction.atomic(using=ALIAS), zk_lock(f"counter:{name}", atomic=ALIAS):
        return increment(name)


@pytest.mark.usefixtures("alias")
def test_nobody_else_reads_before_the_outer_commit_is_done(database: ProjectDatabase) -> None:
    name = database.make_counter()
    with ThreadPoolExecutor(2) as pool:
        with database.gate_shut():
            first = pool.submit(in_thread, in_open_transaction, name)
            database.await_commit_begun()
            second = pool.submit(in_thread, in_open_transaction, name)
            eventually(lambda: in_line(f"counter:{name}") == 2)
        assert (first.result(), second.result()) == (0, 1)


@pytest.mark.usefixtures("alias")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_may_read_old_rows_is_refused(level: str) -> None:
    with transaction.atomic(using=ALIAS):
        connections[ALIAS].cursor().execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        with pytest.raises(LockInTransaction, match=level.lower()):
            zk_lock(KEY, atomic=ALIAS).__enter__()
