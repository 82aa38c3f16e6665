"""Keeps the running ``with`` blocks on a lease, by thread or task.

An interrupt may land between any two steps. Then `leave` undoes a begun block. So a block is an
object of its own, which may be removed more than once.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from distlock.exceptions import LockLost, LockUnavailable
from distlock.logs.loggers import safe
from distlock.owner.owner import current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .hold import LeaseHold

logger = safe(logging.getLogger("distlock"))


class Block:
    """One ``with`` block on a lease, compared by identity.

    :ivar hold: its hold, None before the grant
    """

    __slots__ = ("hold",)

    def __init__(self) -> None:
        self.hold: LeaseHold | None = None


class Blocks:
    """The blocks of one `PersistentLease`."""

    def __init__(self) -> None:
        #: The blocks of each thread or task, by its id, the innermost last.
        self._blocks: dict[str, list[Block]] = {}

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def enter(self, block: Block, hold: LeaseHold) -> None:
        """Begin a block of this thread or task."""
        block.hold = hold
        hold.blocks.add(block)
        self._blocks.setdefault(current().id, []).append(block)

    def innermost(self) -> Block | None:
        """Return the innermost block of this thread or task."""
        blocks = self._blocks.get(current().id)
        return blocks[-1] if blocks else None

    def leave(self, block: Block) -> bool:
        """Forget a block; return whether no other block needs its hold. Repeating it is fine."""
        here = current().id
        blocks = self._blocks.get(here, [])
        with suppress(ValueError):
            blocks.remove(block)
        if not blocks:
            self._blocks.pop(here, None)
        hold = block.hold
        if hold is None:
            return False
        with hold.lock:
            hold.blocks.discard(block)
            return not hold.blocks


@contextmanager
def after_body(hold: LeaseHold, error: BaseException | None, *, proven: bool) -> Iterator[None]:
    """Release a lease after the body of a block, whose own exception takes precedence.

    :param error: the exception of the body
    :param proven: whether the lease was held to the end of the body
    """
    try:
        yield
    except LockLost:
        if error is None:
            raise
    except LockUnavailable as problem:
        if error is None and not proven:
            raise LockLost(
                f"Nobody knows whether the lease {hold.key!r} was held to the end: its time was "
                f"up, and {problem}",
                hold=hold,
            ) from problem
        logger.warning(
            "The lease %r could not be released. It ends by itself at %s: %s",
            hold.key,
            hold.expires,
            problem,
        )
