"""Releases what code has left held at its end, and logs that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import held_permits

if TYPE_CHECKING:
    from collections.abc import Collection
    from logging import Logger

    from distlock.owner.owner import Owner


def held_by(owner: Owner) -> Collection[object]:
    """Return what an owner holds, for `release_leftovers`."""
    return {*owner.held, *held_permits.of_blocks(owner)}


def release_leftovers(
    owner: Owner, name: object, *, keep: Collection[object], logger: Logger
) -> None:
    """Release the locks that a request or a task has left held: its successor would re-enter them.

    A permit is left by a ``with`` block whose end was interrupted at its first instruction.

    :param name: of the request or the task, for the log
    :param keep: what `held_by` returned before: leave that alone
    """
    keys = owner.release_all(keep=keep)
    for held in held_permits.of_blocks(owner):
        if held not in keep and held_permits.forget(held):
            held.grant.leave()
            held.announce_end()
            keys.append(held.hold.key)
    for key in keys:
        logger.error(
            "%s left the lock %r held, and it is released now. Use `with zk_lock(…)`, which "
            "always releases.",
            name,
            key,
        )
