"""Refuses locks inside a database transaction, which would be released before COMMIT."""

from __future__ import annotations

import sys
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from .exceptions import LockInTransaction

if TYPE_CHECKING:
    from types import FrameType


#: The states of libpq's connections without an open transaction, as psycopg numbers them: idle, and
#: closed.
_NO_TRANSACTION: Final = (0, 4)


def refuse_open_transaction(key: str) -> None:
    """Raise if a transaction is open in this thread.

    :raises LockInTransaction: on any database; the block of a `TestCase` does not count
    """
    for alias in connections.settings:
        # Public is connections.all(), which makes seven calls to find out that there is none.
        made = connections._connections  # type: ignore[attr-defined]  # noqa: SLF001
        connection = getattr(made, alias, None)
        if connection is not None and _is_open(connection):
            raise LockInTransaction(
                f"The lock {key!r} cannot be taken inside an open transaction on database "
                f"{connection.alias!r}: it would be released before COMMIT, and the next holder "
                "would read the old rows. Take the lock first and begin inside it: "
                f"`with zk_lock({key!r}, atomic=True): …`. If the order "
                "does not matter, set IN_TRANSACTION to 'allow' in DISTLOCK."
            )


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    blocks: list[Any] = connection.atomic_blocks
    if blocks:
        return any(
            not block._from_testcase and not _is_past(block)  # noqa: SLF001 - as durable=True does
            for block in blocks
        )
    if connection.autocommit or connection.connection is None:
        return False
    return _driver_has_transaction(connection.connection)


def _driver_has_transaction(connection: Any) -> bool:
    """Return whether a connection without autocommit has begun a transaction; True if unknown."""
    if hasattr(connection, "in_transaction"):  # sqlite3
        return bool(connection.in_transaction)
    info = getattr(connection, "info", None)  # psycopg
    return getattr(info, "transaction_status", None) not in _NO_TRANSACTION


#: The code of a function that `atomic` decorates, and of the function that calls commit hooks.
_DECORATED: Final = ContextDecorator()(lambda: None).__code__
_COMMIT_HOOKS: Final = BaseDatabaseWrapper.run_and_clear_commit_hooks.__code__


def _is_past(block: Any) -> bool:
    """Return whether the call that `block` decorates is over, and a commit hook is running.

    With ``ATOMIC_REQUESTS`` on two databases Django decorates a view with two blocks. Hooks of the
    inner one run between its COMMIT and that of the outer one, and the site cannot move them. A
    block that a hook itself has opened does not count.
    """
    in_hook = False
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        if frame.f_code is _COMMIT_HOOKS:
            in_hook = True
        elif in_hook and frame.f_code is _DECORATED and frame.f_locals["self"] is block:
            return True
        frame = frame.f_back
    return False
