"""Locks and database transactions: a lock is taken outside, so that it is released after COMMIT."""

from __future__ import annotations

from typing import Any

from django.db import connections

from .exceptions import LockInTransaction


def refuse_open_transaction(key: str) -> None:
    """Refuse to take a lock inside an open ``atomic()`` block of this thread.

    :raises LockInTransaction: on any database; the block of a `TestCase` does not count
    """
    for connection in connections.all(initialized_only=True):
        # As durable=True tells the two apart.
        blocks: list[Any] = connection.atomic_blocks
        if any(not block._from_testcase for block in blocks):  # noqa: SLF001
            raise LockInTransaction(
                f"The lock {key!r} was about to be taken inside an open transaction on database "
                f"{connection.alias!r}. It would be released before COMMIT, and the next holder "
                "would read the old rows. Take the lock first:\n\n"
                f"    with zk_lock({key!r}, atomic=True):  # BEGIN inside the lock\n"
                "        …\n\n"
                "Where the order does not matter, set IN_TRANSACTION to 'allow' in DISTLOCK."
            )
