"""Builds the admin's page of one lock: its holders, and its waiters in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from distlock.inspection.tree import look
from distlock.locks.actions import can_be_asked, can_be_broken
from distlock.text import MAX_SHOWN, printable

if TYPE_CHECKING:
    from distlock.inspection.state import Contender, Lock, Snapshot

#: The most holders, and the most waiters, on the page.
DEPTH: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One participant of a lock: a row of the page.

    :ivar node: its node, below that of the lock
    :ivar number: its place in the queue, 0 for a holder
    :ivar target: the parameters that name it in the address of an action
    """

    contender: Contender
    node: str
    number: int
    askable: bool
    breakable: bool
    target: str

    @classmethod
    def of(cls, lock: Lock, contender: Contender, number: int) -> Standing:
        """Return the row for a contender."""
        path, token = contender.participant.path, contender.participant.token
        node = path.removeprefix(lock.path).removeprefix("/")
        return cls(
            contender=contender,
            node=printable(node),
            number=number,
            askable=len(node) <= MAX_SHOWN and can_be_asked(contender),
            breakable=len(node) <= MAX_SHOWN and can_be_broken(contender),
            target=urlencode({"node": node, "token": token}) if len(node) <= MAX_SHOWN else "",
        )


class LockDetail:
    """All locks under one name: mostly one, or a mutex and a semaphore of one key.

    :param name: the `Lock.name`
    :param budget: seconds for the reads
    :raises LockKeyError: the name is invalid
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """

    def __init__(self, using: str, name: str, budget: float) -> None:
        self.using = using
        self.name = name
        self.seen: Snapshot = look(name, using, depth=DEPTH, budget=budget)
        self.locks = [lock for lock in self.seen.locks if lock.name == name]

    @property
    def holding(self) -> int:
        """The number of holders."""
        return sum(lock.holding for lock in self.locks)

    @property
    def waiting(self) -> int:
        """The number of waiters."""
        return sum(lock.waiting for lock in self.locks)

    def lines(self) -> list[Line]:
        """Return the locks with their participants."""
        return [Line(lock) for lock in self.locks]

    def find(self, node: str, token: str) -> tuple[Lock, Contender] | None:
        """Return the contender of a node, if the node still has this token."""
        for lock in self.locks:
            for contender in lock.contenders:
                one = contender.participant
                if one.path == f"{lock.path}/{node}".rstrip("/") and str(one.token) == token:
                    return lock, contender
        return None


class Line:
    """One lock, with the participants of its queue."""

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.holders = [Standing.of(lock, one, 0) for one in lock.holders]
        self.waiters = [Standing.of(lock, one, at) for at, one in enumerate(lock.waiters, 1)]

    @property
    def more_holders(self) -> int:
        """The number of holders beyond those shown."""
        return self.lock.holding - len(self.holders)

    @property
    def more_waiters(self) -> int:
        """The number of waiters beyond those shown."""
        return self.lock.waiting - len(self.waiters)
