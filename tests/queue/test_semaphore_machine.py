"""A semaphore's contenders, one event at a time.

Here is also all that `tests.queue.semaphore_explore` does not model: errors of the server, worn
queues, limits in the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from distlock.queue import events as e
from distlock.queue.semaphore import Limit
from distlock.queue.states import State
from tests.queue.semaphore_world import LEASES, LOCKS, At, Bugs, Taker
from tests.queue.test_machine import Session
from tests.queue.world import node_of

if TYPE_CHECKING:
    from collections.abc import Sequence

OTHER = "_c_x-lease-0000000001"


def at_locks(*effects: e.Effect) -> list[At]:
    """Return requests of the place in the queue."""
    return [At(LOCKS, 0, effect) for effect in effects]


def of_permit(number: int, *effects: e.Effect) -> list[At]:
    """Return requests of a permit, the first of which is 1."""
    return [At(LEASES, number, effect) for effect in effects]


def coming(attempt: int = 1) -> list[At]:
    """Return what one asks who comes to the queue."""
    return at_locks(e.ReadLimit(), e.Create(f"_c_A{attempt}-lock-"), e.LIST)


def making(attempt: int = 2, number: int = 1) -> list[At]:
    """Return what makes a permit."""
    return of_permit(number, e.ReadLimit(), e.Create(f"_c_A{attempt}-lease-"), e.LIST)


class Semaphore:
    """One caller's contenders, and answers for them."""

    def __init__(
        self,
        limit: int = 1,
        *,
        wanted: int = 1,
        tries: bool = False,
        joined: bool = True,
        number: int = 4,
    ) -> None:
        self.session: Any = Session()
        self.limit = Limit("key", limit)
        self.number = number
        self.taker = Taker(self.session, 0, self.limit, wanted, tries=tries, bugs=Bugs())
        if joined:
            assert self.apply(e.Join()) == coming()

    def apply(self, event: Any) -> Sequence[Any]:
        return self.taker.apply(event)

    def answer(self, number: int, event: Any) -> Sequence[Any]:
        """Answer a contender: 0 is the place in the queue."""
        return self.apply(At(LEASES if number else LOCKS, number, event))

    def create(self, number: int) -> Sequence[Any]:
        machine = next(part.machine for part in self.taker.parts if part.number == number)
        name = f"{machine.prefix}{machine.policy.kind}{self.number:010d}"
        self.number += 1
        node = node_of(name, 100 + self.number, self.session.id)
        return self.answer(number, e.Created(node))

    def read(
        self, taken: int = 0, data: bytes | None = None, *, number: int = 0, **more: Any
    ) -> Sequence[Any]:
        """Answer a request for the limit."""
        data = self.limit.announcement if data is None else data
        return self.answer(number, e.LimitRead(data, 7, taken, **more))

    def at_head(self) -> Sequence[Any]:
        """Let it have its turn."""
        self.read()
        self.create(0)
        return self.list(0)

    def waiting(self) -> None:
        """Let it wait at the head, behind another's permit."""
        self.at_head()
        self.create(1)
        assert self.list(1, OTHER) == of_permit(1, e.WatchLimit(), e.WatchNames())
        assert self.read(2, number=1) == []
        assert self.list(1, OTHER) == []
        assert self.states == [State.HOLDING, State.WAITING]

    def list(self, number: int, *others: str, **more: Any) -> Sequence[Any]:
        """Answer a list, with these nodes and our own."""
        taker = self.taker
        machines = taker.permits if number else [taker.queue]
        names = [*others, *(machine.node.name for machine in machines if machine.node)]
        return self.answer(number, e.Listed(names, **more))

    @property
    def states(self) -> Sequence[State]:
        return [machine.state for machine in self.taker.machines]


def deleted(effects: Sequence[Any]) -> list[str]:
    """Return the names of the nodes that are deleted."""
    return [at.what.name for at in effects if type(at.what) is e.Delete]


# --- the limit ------------------------------------------------------------------------------------


def test_the_limit_in_the_code_is_written_where_none_is() -> None:
    write = at_locks(e.WriteLimit(b'{"v":1,"limit":2}', 7))
    assert Semaphore(2).read(0, b"127.0.0.1") == write


def test_missing_nodes_are_made_with_the_limit_in_the_code() -> None:
    semaphore = Semaphore(2)
    semaphore.read(error=e.Problem.MISSING)
    missing = e.Created(None, e.Problem.MISSING)
    assert semaphore.answer(0, missing) == [*at_locks(e.MakeLine()), *coming(2)]
    semaphore.answer(0, e.LineMade())
    assert semaphore.at_head() == making(3)
    assert semaphore.answer(1, missing) == of_permit(1, e.ReadKept())
    make = of_permit(1, e.MakePermits(b'{"v":1,"limit":2}'))
    assert semaphore.answer(1, e.KeptRead(error=e.Problem.MISSING)) == [*make, *making(4)]


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["queue", "limit", "create", "kept", "list", "line", "watch"])
def test_an_unknown_error_is_for_the_caller(when: str) -> None:
    semaphore, error = Semaphore(), OSError("no")
    if when == "queue":
        refused = semaphore.answer(0, e.Created(None, error))
    elif when == "limit":
        semaphore.read(error=error)
        semaphore.create(0)
        refused = semaphore.list(0)
    elif when == "watch":
        semaphore.waiting()
        refused = semaphore.list(1, error=error)
    else:
        semaphore.at_head()
        if when == "list":
            semaphore.create(1)
            refused = semaphore.list(1, error=error)
        elif when == "create":
            refused = semaphore.answer(1, e.Created(None, error))
        elif when == "kept":
            semaphore.answer(1, e.Created(None, e.Problem.MISSING))
            refused = semaphore.answer(1, e.KeptRead(error=error))
        else:
            semaphore.answer(1, e.LineMade(error))
            refused = semaphore.answer(1, e.Created(None, e.Problem.MISSING))
    assert refused == [e.Refuse(e.Why.ERROR, error)]
    leases = [name for name in deleted(semaphore.apply(e.Leave())) if "lease" in name]
    assert len(leases) == (when in ("list", "watch"))
