"""Policies: the differences between the kinds of locks.

A policy is a value. `machine.Machine` asks it for its node's name and for the one ahead that it
waits for, and does all the rest in one way for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from distlock.keys import znodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.keys.znodes import NodeName

    from .events import Node


class Spot(Protocol):
    """The place in line of a writer that becomes a reader."""

    @property
    def node(self) -> Node | None:
        """The writer's node."""

    @property
    def valid(self) -> bool:
        """Whether the writer still holds the lock."""


def predecessor(line: list[NodeName], own: int) -> NodeName | None:
    """Wait for the one directly ahead: first come, first served.

    Source: Curator's ``StandardLockInternalsDriver``.
    """
    return line[own - 1] if own else None


def first_writer(line: list[NodeName], own: int) -> NodeName | None:
    """Wait for the first one ahead that is no reader.

    Source: Curator's ``InterProcessReadWriteLock``. There a reader passes over all but writers, and
    so over mutexes; here a mutex on the same path counts as a writer.
    """
    return next((other for other in line[:own] if other.kind != znodes.READ), None)


def waiting_ahead(line: list[NodeName], own: int) -> int:
    """Return how many wait ahead of one that has to wait.

    The first holds the lock, or all readers before the first that is none.
    """
    first = next((index for index, other in enumerate(line) if other.kind != znodes.READ), own)
    return own - (first or 1)


def waiting_in(line: list[NodeName]) -> int:
    """Return how many wait in a line whose first has the lock."""
    # A writer that reads, too, has two nodes with the same number; so has one with a cool-down.
    return waiting_ahead(line, len(line)) - len(line) + len({node.sequence for node in line})


@dataclass(frozen=True, slots=True)
class Policy:
    """A kind of contender.

    :ivar kind: the recipe's part of the node's name
    :ivar whom: returns the one that the contender at an index of the line waits for, None for its
        own turn
    :ivar shared: whether others may hold at the same time
    :ivar queues: whether it keeps its node while others are ahead
    :ivar hands_over: whether it hands the lock to its neighbour of the same process
    :ivar spot: the writer in whose place it gets its node
    """

    kind: str
    whom: Callable[[list[NodeName], int], NodeName | None] = predecessor
    shared: bool = False
    queues: bool = True
    hands_over: bool = False
    spot: Spot | None = None


#: A mutex.
MUTEX = Policy(znodes.LOCK, hands_over=True)
#: A fair line whose contenders all ask the server, such as the queue before a semaphore.
FAIR = Policy(znodes.LOCK)
#: A mutex that leaves a cool-down behind. It hands over to nobody, who would not see that.
COOLING = Policy(f"{znodes.COOLS[1:]}{znodes.LOCK}")
#: The first to come after a release gets the lock. It joins the same line, and leaves it when it is
#: not first, so it excludes those who queue and is excluded by them, Java's too.
UNFAIR = Policy(znodes.LOCK, queues=False)
WRITER = Policy(znodes.WRITE)
READER = Policy(znodes.READ, first_writer, shared=True)


def downgraded(writer: Spot) -> Policy:
    """Return the policy of a reader in the very place of `writer`, which holds the lock.

    Its node gets the writer's number, so that queued writers stay behind it when the writer's node
    is deleted (CURATOR-621), and keeps the writer's fencing token.
    """
    return Policy(znodes.READ, first_writer, shared=True, spot=writer)


def of_the_other_family(line: list[NodeName], own: int) -> NodeName | None:
    """Return the nearest mutex ahead of a reader or writer, or the reverse; else one behind.

    distlock's mutexes, readers and writers wait for each other. Curator's mutex passes over the
    nodes of its read/write lock, and the other way round.
    """
    mutex = line[own].kind == znodes.LOCK
    nearest = chain(reversed(line[:own]), line[own + 1 :])
    return next((other for other in nearest if (other.kind == znodes.LOCK) != mutex), None)
