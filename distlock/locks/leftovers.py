"""Releases what code has left held at its end, and logs that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from logging import Logger

    from distlock.owner.owner import Owner


def release_leftovers(
    owner: Owner, name: object, *, keep: Collection[tuple[str, str]], logger: Logger
) -> None:
    """Release the locks that a request or a task has left held: its successor would re-enter them.

    :param name: of the request or the task, for the log
    :param keep: the (alias, znode name) of holds to leave alone
    """
    for key in owner.release_all(keep=keep):
        logger.error(
            "%s left the lock %r held, and it is released now. Use `with zk_lock(…)`, which "
            "always releases.",
            name,
            key,
        )
