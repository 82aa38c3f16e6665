"""Keeps locks around database transactions: a lock inside one would be released before COMMIT."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.db import Error, connections, transaction

from .exceptions import LockInTransaction, LockLost
from .logs.loggers import logger

if TYPE_CHECKING:  # its import takes long
    from django.db.backends.base.base import BaseDatabaseWrapper

#: The states of libpq's connections without an open transaction, as psycopg numbers them: idle, and
#: closed.
_NO_TRANSACTION: Final = (0, 4)
#: The state of one that executes a statement.
_ACTIVE: Final = 1
#: The seconds that a database has to end a statement that was abandoned.
CANCEL_SECONDS: Final = 5.0


def refuse_open_transaction(key: str, but: str | None = None) -> None:
    """Raise if a transaction is open in this thread; the block of a `TestCase` does not count.

    :param but: the alias of the database until the end of whose transaction the lock is kept
    """
    for alias in connections.settings:
        # Public is connections.all(), which makes seven calls to find out that there is none.
        made = connections._connections  # type: ignore[attr-defined]  # noqa: SLF001
        connection = getattr(made, alias, None)
        if connection is not None and _is_open(connection):
            if alias == but:
                _refuse_old_snapshot(key, connection)
                continue
            how = "until='commit'" if alias == "default" else f"atomic={alias!r}"
            first = "Take the lock first and begin inside it"
            if connection.settings_dict["ATOMIC_REQUESTS"]:
                first = (
                    "If ATOMIC_REQUESTS began it, decorate the view or its dispatch() with "
                    "@zk_locked, above any @transaction.atomic, or exempt the view by "
                    "@transaction.non_atomic_requests"
                )
            raise LockInTransaction(
                f"The lock {key!r} cannot be taken inside an open transaction on database "
                f"{alias!r}: it would be released before COMMIT, and the next holder "
                f"would read the old rows. {first}. Or keep it until the COMMIT by a block: `with "
                f"zk_lock({key!r}, {how}): …`. If the order does not matter, set IN_TRANSACTION "
                "to 'allow' in DISTLOCK."
            )


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    blocks: list[Any] = connection.atomic_blocks
    if blocks:
        return not all(block._from_testcase for block in blocks)  # noqa: SLF001 - as durable=True does
    driver: Any = connection.connection
    if connection.autocommit or driver is None:
        return False
    if hasattr(driver, "in_transaction"):  # sqlite3
        return bool(driver.in_transaction)
    info = getattr(driver, "info", None)  # psycopg; another driver may have a transaction
    return getattr(info, "transaction_status", None) not in _NO_TRANSACTION


# --- until the end of a transaction --------------------------------------------------------------


def _refuse_old_snapshot(key: str, connection: BaseDatabaseWrapper) -> None:
    """Raise if the transaction may read rows as they were before the lock was granted.

    In READ COMMITTED each statement sees what was committed before it. In SQLite a transaction with
    an old snapshot cannot write (SQLITE_BUSY_SNAPSHOT).
    """
    if connection.vendor == "sqlite":
        return
    level = f"unknown to distlock for {connection.vendor}"
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            (level,) = cursor.fetchone()
    if level not in ("read committed", "read uncommitted"):
        raise LockInTransaction(
            f"The lock {key!r} cannot be taken inside the open transaction on database "
            f"{connection.alias!r}, whose isolation level is {level}: it may go on to read the "
            "rows as they were before the lock. Take the lock first and begin inside it, or use "
            "READ COMMITTED."
        )


#: The methods of a connection that end a transaction, or a part of it.
_ENDS: Final = (
    "commit",
    "rollback",
    "set_autocommit",
    "savepoint_commit",
    "savepoint_rollback",
    "close",
)
#: Where a connection has its `_Ending`.
_HERE: Final = "distlock_ending"


class _Kept(NamedTuple):
    """A lock that is kept.

    :ivar check: raises if it is lost
    :ivar release: releases it, any number of times, given whether the transaction ended cleanly
    :ivar savepoints: those that were open; to roll back to one of them ends the wait, too
    """

    check: Callable[[], None]
    release: Callable[[bool], None]
    savepoints: list[str]


class _Ending:
    """Keeps locks until the transaction on a connection ends.

    Django tells nobody of a ROLLBACK, so this stands before the methods by which one ends (called
    by ``Atomic.__exit__`` in ``django/db/transaction.py``), for as long as there is a lock to keep.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._kept: list[_Kept] = []
        #: Whether Django turns autocommit on right after the end. Until then a receiver of
        #: `lock_released` that uses the database would begin another transaction.
        self._restores = connection.in_atomic_block and connection.commit_on_exit
        self._clean = self._committed = False
        ends = {
            name: partial(getattr(self, f"_{name}"), getattr(connection, name)) for name in _ENDS
        }
        connection.__dict__.update({_HERE: self, **ends})  # all or nothing

    def keep(self, check: Callable[[], None], release: Callable[[bool], None]) -> None:
        """Keep a lock."""
        self._kept.append(_Kept(check, release, list(self._connection.savepoint_ids)))

    def _commit(self, commit: Callable[[], None]) -> None:
        """Commit, unless a lock is lost; then roll back, and raise `LockLost`."""
        self._connection.validate_no_atomic_block()  # or else it raises, and ends nothing
        self._check()
        self._committed = True
        self._end(commit, releases=not self._restores)

    def _check(self) -> None:
        try:
            for one in self._kept:
                one.check()
        except BaseException:
            self._connection.rollback()
            raise

    def _rollback(self, rollback: Callable[[], None]) -> None:
        self._connection.validate_no_atomic_block()
        self._end(rollback, releases=not self._restores)

    def _set_autocommit(self, set_autocommit: Callable[..., None], on: bool, **how: bool) -> None:
        """Release after the end of an ``atomic()``. Without one, this is a COMMIT itself."""

        def turn() -> None:
            if on and not self._restores:
                self._check()
                self._committed = True
            set_autocommit(on, **how)

        self._end(turn, releases=on, clean=self._clean or not self._restores)

    def _close(self, close: Callable[[], None]) -> None:
        self._end(close)

    def _savepoint_rollback(self, rollback: Callable[[str], None], savepoint: str) -> None:
        self._end(partial(rollback, savepoint), savepoint=savepoint)

    def _savepoint_commit(self, commit: Callable[[str], None], savepoint: str) -> None:
        """Release a savepoint; the outermost within a `TestCase` stands for the transaction."""
        blocks: list[Any] = self._connection.atomic_blocks
        outermost = blocks and all(block._from_testcase for block in blocks)  # noqa: SLF001
        self._end(partial(commit, savepoint), releases=bool(outermost))

    def _end(
        self,
        end: Callable[[], None],
        *,
        releases: bool = True,
        clean: bool = True,
        savepoint: str | None = None,
    ) -> None:
        """Do what ends a transaction or a part of it, and release what was kept for that.

        An exception may land anywhere, also between the two.

        :param clean: whether all has ended cleanly if `end` does
        """
        self._clean = False
        try:
            try:
                end()
                self._clean = clean
            finally:
                if releases:
                    self._release(savepoint)
        except BaseException:
            if releases:
                self._release(savepoint)
            raise

    def _release(self, savepoint: str | None) -> None:
        """Release what was kept, or what a savepoint was around."""
        ended: list[_Kept] = []
        left: list[_Kept] = []
        for one in self._kept:
            (ended if savepoint is None or savepoint in one.savepoints else left).append(one)
        try:
            self._release_each(ended, left)
        except BaseException:  # an exception may land in the middle
            self._release_each(ended, left)
            raise

    def _release_each(self, ended: list[_Kept], left: list[_Kept]) -> None:
        self._kept = left
        # First: a release may close the connection, or begin another transaction.
        if not left and self._connection.__dict__.get(_HERE) is self:
            for name in (*_ENDS, _HERE):
                self._connection.__dict__.pop(name, None)
        errors: list[BaseException] = []
        for one in ended:
            try:
                one.release(self._clean)
            except LockLost as error:
                if self._committed:  # or else nothing is left of what the lock protected
                    errors.append(error)
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise errors[0]


def keep_until_end(alias: str, check: Callable[[], None], release: Callable[[bool], None]) -> bool:
    """Keep a lock until the open transaction on a database ends; return whether there is one.

    :param check: raises if the lock is lost, which stops the COMMIT
    :param release: releases the lock, any number of times, given whether it ended cleanly
    """
    connection = connections[alias]
    if connection.closed_in_transaction or not _is_open(connection):
        return False
    ending: _Ending | None = connection.__dict__.get(_HERE)
    if ending is None:
        ending = _Ending(connection)
    ending.keep(check, release)
    return True


# --- abandoned statements ------------------------------------------------------------------------


def end_statements(left: Iterable[transaction.Atomic] = ()) -> None:
    """End what this thread has abandoned in its databases: they would execute it after the release.

    An exception in a signal handler, such as Celery's soft time limit, leaves a statement running,
    COMMIT too: psycopg cancels it for KeyboardInterrupt and SystemExit only (``Connection.wait``).
    A second one meanwhile closes the connection, after which nothing can be cancelled.
    Where the exception came just before COMMIT, the transaction is open, and keeps its rows locked.
    The connection is closed, because Django's state of it may be wrong.

    :param left: blocks whose end an exception has prevented, so that nobody would end them
    """
    for block in left:
        connection = transaction.get_connection(block.using)
        connection.in_atomic_block, connection.atomic_blocks = False, []
        connection.savepoint_ids = []
        connection.close()
    for connection in connections.all(initialized_only=True):
        driver: Any = connection.connection
        if connection.in_atomic_block or driver is None:
            continue
        pgconn = getattr(driver, "pgconn", None)
        if pgconn is not None and pgconn.transaction_status == _ACTIVE:
            try:
                _cancel(driver)
            except (driver.Error, OSError):
                logger.exception(
                    "A statement on database %r was abandoned, and cannot be cancelled. It may "
                    "change rows after the release of the lock.",
                    connection.alias,
                )
            finally:
                connection.close()
        elif (
            sys.exc_info()[0] is not None
            and not connection.autocommit
            and connection.settings_dict["AUTOCOMMIT"]  # a block of Django's began a transaction
        ):
            connection.close()


def _cancel(driver: Any) -> None:
    """Cancel a statement of psycopg 3, and wait for its end."""
    pgconn, deadline = driver.pgconn, time.monotonic() + CANCEL_SECONDS
    with DefaultSelector() as selector:
        selector.register(pgconn.socket, EVENT_READ)
        while pgconn.transaction_status == _ACTIVE:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"The statement did not end within {CANCEL_SECONDS} s.")
            if not pgconn.is_busy():
                pgconn.get_result()
                continue
            # Once more each second: the server ignores a request that overtakes its statement.
            if hasattr(driver, "cancel_safe"):
                driver.cancel_safe(timeout=remaining)
            else:  # psycopg 3.1
                driver.cancel()
            if selector.select(min(remaining, 1)):
                pgconn.consume_input()


def interruption(failure: Error, known: BaseException | None) -> BaseException | None:
    """Return the exception behind the failure of a transaction's end, if none of the database.

    psycopg refuses what Django does after an interrupted COMMIT, and that error hides the first.
    `known` is the exception that was handled when the transaction ended.
    """
    found: BaseException | None = failure
    while found is not None and found is not known:
        if not (isinstance(found, Error) or type(found).__module__.startswith("psycopg")):
            return found
        found = found.__context__
    return None


# --- ATOMIC_REQUESTS -----------------------------------------------------------------------------


class OpensOwnTransaction(frozenset[str]):
    """The ``_non_atomic_requests`` of a locked view: it claims every database.

    Django wraps a view in ``atomic()`` from outside, around our lock, so the lock would be released
    before COMMIT (django-pglocks 15). Django leaves a view with this mark alone, and the view opens
    the transaction inside its lock. The set has the databases that the site itself exempts. It is
    frozen, since all ``as_view()`` of a class share it.
    """

    def __contains__(self, alias: object) -> bool:
        return True


def claimed_databases(request: object) -> Iterator[str]:
    """Yield the databases whose ``ATOMIC_REQUESTS`` Django left to the view of a request."""
    match = getattr(request, "resolver_match", None)
    claim = getattr(getattr(match, "func", None), "_non_atomic_requests", None)
    if isinstance(claim, OpensOwnTransaction):
        exempt = set(claim)
        for alias, options in connections.settings.items():
            if options["ATOMIC_REQUESTS"] and alias not in exempt:
                yield alias


def reclaim_transactions(view: Any) -> None:
    """Claim all databases again where ``non_atomic_requests`` above `zk_locked` replaced that."""
    locked = getattr(view, "distlock", None)
    marker = getattr(view, "_non_atomic_requests", ())
    if locked is not None and not isinstance(marker, OpensOwnTransaction):
        view._non_atomic_requests = OpensOwnTransaction({*marker, *locked.marker})  # noqa: SLF001
