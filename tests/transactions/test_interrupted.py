"""A statement that a signal's exception abandons has ended before the lock is free (promise 9).

The gate of the test's database stops COMMIT half-way, that of a transaction and that of a single
UPDATE. Then a signal handler raises, as Celery's soft time limit does.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from threading import main_thread
from typing import Any, TypeAlias

import pytest
from celery import Celery
from django.db import OperationalError, ProgrammingError, connections, transaction

from distlock import (
    transactions,
    zk_lease,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
    zk_semaphore_mutex,
)
from distlock.owner.hold import Held
from tests.kit.helpers import eventually, logged
from tests.kit.tools import PATIENCE, Owner
from tests.testproject.database import GATE, ProjectDatabase
from tests.testproject.elsewhere import in_line
from tests.testproject.models import Counter
from tests.transactions.conftest import ALIAS

pytestmark = pytest.mark.usefixtures("distlock_settings", "alias")


app = Celery("interrupted", set_as_current=False)


class TimeIsUp(Exception):
    pass


class Interrupted(KeyboardInterrupt):
    """One that psycopg itself looks for."""


@contextmanager
def interrupted_in_commit(
    database: ProjectDatabase, error: type[BaseException] = TimeIsUp
) -> Iterator[None]:
    """Raise `error` in this thread when the database is at the gate, which stays shut."""

    def interrupt() -> None:
        database.await_commit_begun()
        signal.pthread_kill(main_thread().ident, signal.SIGUSR1)  # type: ignore[arg-type]

    def handler(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with Owner() as other, database.gate_shut():
            interrupting = other.submit(interrupt)
            yield
            interrupting.result(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)


def increment(name: str) -> None:
    counter = Counter.objects.using(ALIAS).get(name=name)
    counter.value += 1
    counter.save(using=ALIAS)


def atomic_block(name: str) -> None:
    with zk_lock(f"counter:{name}", atomic=ALIAS):
        increment(name)


@zk_locked("counter:<name>", atomic=ALIAS)
def atomic_function(name: str) -> None:
    increment(name)


def own_transaction(name: str) -> None:
    with zk_lock(f"counter:{name}"), transaction.atomic(using=ALIAS):
        increment(name)


def autocommit(name: str) -> None:
    with zk_lock(f"counter:{name}"):
        increment(name)


def acquire_and_release(name: str) -> None:
    lock = zk_lock(f"counter:{name}")
    lock.acquire()
    try:
        increment(name)
    finally:
        lock.release()


def write_lock(name: str) -> None:
    with zk_rwlock(f"counter:{name}").write:
        increment(name)


def two_locks(name: str) -> None:
    with zk_multilock(zk_lock(f"counter:{name}"), zk_lock("till")):
        increment(name)


def lease(name: str) -> None:
    with zk_lease(f"counter:{name}", ttl=60):
        increment(name)


@app.task(shared=False)  # type: ignore[untyped-decorator]
@zk_locked("counter:<name>")
def task(name: str) -> None:
    with suppress(TimeIsUp):
        increment(name)


@app.task(shared=False)  # type: ignore[untyped-decorator]
def careless_task(name: str) -> None:
    zk_lock(f"counter:{name}").acquire()
    increment(name)


def left_held_by_a_task(name: str) -> None:
    careless_task.apply([name], throw=True)


def caught_in_a_task(name: str) -> None:
    task.apply([name], throw=True)


def with_lock(name: str) -> Any:
    return zk_lock(f"counter:{name}", timeout=PATIENCE)


def with_semaphore(name: str) -> Any:
    return zk_semaphore_mutex(f"counter:{name}", timeout=PATIENCE)


def with_lease(name: str) -> Any:
    return zk_lease(f"counter:{name}", ttl=60, timeout=PATIENCE)


def semaphore_mutex(name: str) -> None:
    with zk_semaphore_mutex(f"counter:{name}"):
        increment(name)


Work: TypeAlias = "Callable[[str], None]"

WORK: dict[str, tuple[Work, Callable[[str], Any]]] = {
    "atomic": (atomic_block, with_lock),
    "atomic_function": (atomic_function, with_lock),
    "own_transaction": (own_transaction, with_lock),
    "autocommit": (autocommit, with_lock),
    "acquire_and_release": (acquire_and_release, with_lock),
    "write_lock": (write_lock, with_lock),
    "two_locks": (two_locks, with_lock),
    "semaphore_mutex": (semaphore_mutex, with_semaphore),
    "lease": (lease, with_lease),
    "left_held_by_a_task": (left_held_by_a_task, with_lock),
    "caught_in_a_task": (caught_in_a_task, with_lock),
}


@pytest.mark.parametrize("error", [TimeIsUp, Interrupted])
@pytest.mark.parametrize(("work", "lock"), WORK.values(), ids=WORK)
def test_the_next_holder_finds_no_statement_of_the_former_one(
    database: ProjectDatabase,
    work: Work,
    lock: Callable[[str], Any],
    error: type[BaseException],
) -> None:
    name = database.make_counter()

    def look() -> tuple[bool, int]:
        with lock(name):
            return database.is_committing(), database.value(name)

    with Owner() as rival:
        with interrupted_in_commit(database, error):
            with raises_as(work, error):
                work(name)
            assert rival.now(look) == (False, 0)
        assert database.value(name) == 0  # nobody has passed the gate since
    work(name)  # on a new connection
    assert database.value(name) == 1


def raises_as(work: Work, error: type[BaseException]) -> Any:
    if work is caught_in_a_task and error is TimeIsUp:
        return nullcontext()
    if work is own_transaction:
        # Django's own error hides the other one where we do not end the transaction, and psycopg
        # has not cancelled the statement: it does for `Interrupted`, if that lands in its wait.
        return pytest.raises((error, ProgrammingError))
    return pytest.raises(error)


def pass_gate(refuse: str = "") -> None:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(
            "DO $$ BEGIN LOOP BEGIN"
            f"   PERFORM pg_advisory_xact_lock_shared({GATE}); EXIT; {refuse}"
            " END; END LOOP; END $$"
        )


@app.task(shared=False)  # type: ignore[untyped-decorator]
@zk_locked("counter:<name>", atomic=ALIAS)
def atomic_task(name: str) -> None:
    increment(name)
    with suppress(TimeIsUp):
        pass_gate()


def test_a_transaction_whose_statement_was_caught_does_not_seem_to_be_committed(
    database: ProjectDatabase,
) -> None:
    name = database.make_counter()
    with interrupted_in_commit(database), pytest.raises(OperationalError):
        atomic_task.apply([name], throw=True)
    eventually(lambda: in_line(f"counter:{name}") == 0)
    assert database.value(name) == 0


def test_a_statement_that_cannot_be_cancelled_does_not_keep_the_lock(
    database: ProjectDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactions, "CANCEL_SECONDS", 0.2)
    with interrupted_in_commit(database):
        with pytest.raises(TimeIsUp), zk_lock("stock:42"):
            pass_gate("EXCEPTION WHEN query_canceled THEN")
        eventually(lambda: in_line("stock:42") == 0)
    (line,) = logged(caplog)
    assert line.startswith(f"A statement on database '{ALIAS}' was abandoned")
    eventually(lambda: not database.is_committing())


@pytest.mark.parametrize("where", ["before the block's end", "before COMMIT"])
def test_an_exception_just_before_commit_leaves_no_transaction_open(
    database: ProjectDatabase, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        raise TimeIsUp

    name, connection = database.make_counter(), connections[ALIAS]
    early: dict[str, tuple[Any, str]] = {
        "before COMMIT": (connection, "_commit"),
        "before the block's end": (Held, "end_transaction"),
    }

    def work() -> None:
        with zk_lock(f"counter:{name}", atomic=ALIAS):
            increment(name)
            monkeypatch.setattr(*early[where], interrupt)

    with pytest.raises(TimeIsUp):
        work()
    assert connection.connection is None
    atomic_block(name)  # neither the row nor the connection is in the way
    assert database.value(name) == 1
