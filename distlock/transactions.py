"""Locks and database transactions: a lock is taken outside, so that it is released after COMMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db import connections

from .exceptions import LockInTransaction

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


#: The states of libpq's connections, as psycopg numbers them, in which no transaction is open:
#: idle, and closed.
_NO_TRANSACTION: Final = (0, 4)


def refuse_open_transaction(key: str) -> None:
    """Raise if a transaction is open in this thread.

    :raises LockInTransaction: on any database; the block of a `TestCase` does not count
    """
    for connection in connections.all(initialized_only=True):
        if _is_open(connection):
            raise LockInTransaction(
                f"The lock {key!r} was about to be taken inside an open transaction on database "
                f"{connection.alias!r}. It would be released before COMMIT, and the next holder "
                "would read the old rows. Take the lock first:\n\n"
                f"    with zk_lock({key!r}, atomic=True):  # BEGIN inside the lock\n"
                "        …\n\n"
                "Where the order does not matter, set IN_TRANSACTION to 'allow' in DISTLOCK."
            )


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    blocks: list[Any] = connection.atomic_blocks
    if blocks:  # as durable=True tells the two apart
        return any(not block._from_testcase for block in blocks)  # noqa: SLF001
    if connection.autocommit or connection.connection is None:
        return False
    return _driver_has_transaction(connection.connection)


def _driver_has_transaction(connection: Any) -> bool:
    """Tell whether a connection without autocommit has begun a transaction: True where unknown."""
    if hasattr(connection, "in_transaction"):  # sqlite3
        return bool(connection.in_transaction)
    info = getattr(connection, "info", None)  # psycopg
    return getattr(info, "transaction_status", None) not in _NO_TRANSACTION
