"""Keeps locks around database transactions: a lock inside one would be released before COMMIT.

It refuses a lock inside an open transaction, and takes over the transaction of a locked view from
Django.
"""

from __future__ import annotations

import sys
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from .exceptions import LockInTransaction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from django.http import HttpRequest


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


# --- ATOMIC_REQUESTS -----------------------------------------------------------------------------


class OpensOwnTransaction(frozenset[str]):
    """The ``_non_atomic_requests`` of a locked view: it claims every database.

    Django wraps a view in ``atomic()`` from outside, around our lock, so the lock would be released
    before COMMIT (django-pglocks 15). Django leaves a view with this mark alone, and the view opens
    the transaction inside its lock. The set has the databases that the site itself exempts with
    ``non_atomic_requests`` below our decorator. Above it, Django replaces this object, and
    `reclaim_transactions` makes one for the view. It is frozen, since all ``as_view()`` of a class
    share it.
    """

    def __contains__(self, alias: object) -> bool:
        return True


def claimed_databases(request: HttpRequest | None) -> Iterator[str]:
    """Yield the databases whose ``ATOMIC_REQUESTS`` Django left to the view of a request."""
    match = getattr(request, "resolver_match", None)
    claim = getattr(getattr(match, "func", None), "_non_atomic_requests", None)
    if isinstance(claim, OpensOwnTransaction):
        exempt = set(claim)
        for alias, options in connections.settings.items():
            if options["ATOMIC_REQUESTS"] and alias not in exempt:
                yield alias


def reclaim_transactions(view: Any) -> None:
    """Claim every database again for a locked view, before Django opens their transactions.

    ``non_atomic_requests`` above `zk_locked` replaces our claim of all databases by the exempted
    one.
    """
    locked = getattr(view, "distlock", None)
    marker = getattr(view, "_non_atomic_requests", ())
    if locked is not None and not isinstance(marker, OpensOwnTransaction):
        view._non_atomic_requests = OpensOwnTransaction({*marker, *locked.marker})  # noqa: SLF001
