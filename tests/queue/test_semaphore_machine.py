"""The state machine of a semaphore's contender, one event at a time.

Here is also all that `tests.queue.semaphore_explore` does not model: errors of the server, worn
queues, limits in the code.
"""

from __future__ import annotations

from typing import Any

import pytest

from distlock.queue import events as e
from distlock.queue.semaphore import events as s
from distlock.queue.semaphore.events import LEASES, LOCKS, At
from distlock.queue.semaphore.limits import Limit, setting
from distlock.queue.semaphore.machine import SemaphoreMachine
from distlock.queue.semaphore.states import SemaphoreState
from tests.queue.test_machine import Session

Effects = list[Any]

#: What a contender asks for when it comes, and when it has its turn.
ENTRY: Effects = [
    At(LOCKS, e.Create("_c_1-lock-")),
    At(LOCKS, e.List()),
    At(LEASES, s.ReadLimit()),
]
CREATE, LIST = At(LEASES, e.Create("_c_2-lease-")), At(LEASES, e.List())
OTHER = "_c_x-lease-0000000001"
AHEAD = "_c_x-lock-0000000003"


class Semaphore:
    """One contender, and answers for it."""

    def __init__(self, limit: int = 1, *, joined: bool = True, number: int = 4, **options: Any):
        self.session = Session()
        self.made = 0
        self.number = number
        self.limit = Limit("key", limit)
        self.machine = SemaphoreMachine(self.session, self.limit, new_prefix=self.prefix, **options)
        if joined:
            assert self.apply(e.Join()) == ENTRY

    def prefix(self) -> str:
        self.made += 1
        return f"_c_{self.made}-"

    def apply(self, event: Any) -> Effects:
        return list(self.machine.apply(event))

    def create(self, where: str) -> Effects:
        """Answer a create."""
        if where == LOCKS:
            name = f"{self.machine.queue.prefix}lock-{self.number:010d}"
        else:
            name = f"{self.machine.prefix}lease-{self.number:010d}"
        self.number += 1
        return self.apply(At(where, e.Created(e.node_of(name, 100 + self.number, self.session.id))))

    def list(self, where: str, *others: str, **more: Any) -> Effects:
        """Answer a list, with these nodes and our own."""
        machine = self.machine
        nodes = [machine.queue.node] if where == LOCKS else machine.nodes
        names = [*others, *(node.name for node in nodes if node)]
        return self.apply(At(where, e.Listed(names, **more)))

    def read(self, taken: int = 0, data: bytes | None = None, **more: Any) -> Effects:
        """Answer a request for the limit."""
        data = self.limit.announcement if data is None else data
        return self.apply(At(LEASES, s.LimitRead(data, 7, taken, **more)))

    def at_head(self) -> Effects:
        """Let it have its turn."""
        self.create(LOCKS)
        self.list(LOCKS)
        return self.read()

    def with_nodes(self) -> None:
        """Let it have its turn, and its nodes."""
        self.at_head()
        for _ in range(self.machine.wanted):
            self.create(LEASES)

    def waiting(self, *others: str) -> None:
        """Let it wait at the head, behind these permits."""
        self.with_nodes()
        wait = [At(LEASES, s.WatchPermits(names=False)), At(LEASES, s.WatchPermits(names=True))]
        assert self.list(LEASES, *others) == wait
        self.read()
        assert self.list(LEASES, *others) == []
        assert self.machine.state is SemaphoreState.WAITING


# --- one after the other --------------------------------------------------------------------------


def test_a_permit_takes_two_round_trips() -> None:
    semaphore = Semaphore()
    assert semaphore.at_head() == [CREATE, LIST]
    semaphore.create(LEASES)
    assert semaphore.list(LEASES) == [At(LOCKS, e.Delete("_c_1-lock-0000000004", 1)), e.Grant()]
    (permit,) = semaphore.machine.permits
    assert permit.valid
    assert permit.apply(e.Leave()) == [e.Delete("_c_2-lease-0000000005", 1)]


def test_several_permits_are_made_in_one_go() -> None:
    semaphore = Semaphore(3, wanted=2)
    assert semaphore.at_head() == [CREATE, CREATE, LIST]
    semaphore.create(LEASES)
    semaphore.create(LEASES)
    assert semaphore.list(LEASES, OTHER)[-1] == e.Grant()
    assert [permit.policy.shared for permit in semaphore.machine.permits] == [True, True]


def test_it_comes_to_the_queue_when_there_is_a_connection() -> None:
    semaphore = Semaphore(joined=False)
    semaphore.session.connected = False
    assert semaphore.apply(e.Join()) == []
    semaphore.session.connected = True
    assert semaphore.apply(e.Connected()) == ENTRY


def test_who_has_waited_in_the_queue_reads_the_limit_again() -> None:
    semaphore = Semaphore()
    semaphore.create(LOCKS)
    assert semaphore.list(LOCKS, AHEAD) == [At(LOCKS, e.Watch(AHEAD))]
    assert semaphore.machine.ahead == 1
    assert semaphore.read() == []
    assert semaphore.machine.state is SemaphoreState.QUEUEING
    semaphore.apply(At(LOCKS, e.Changed(AHEAD, deleted=True)))
    assert semaphore.list(LOCKS) == [At(LEASES, s.ReadLimit()), CREATE, LIST]


def test_nobody_passes_the_queue_before_the_limit_is_read() -> None:
    semaphore = Semaphore()
    semaphore.create(LOCKS)
    assert semaphore.list(LOCKS) == []
    assert semaphore.machine.state is SemaphoreState.COUNTING
    assert semaphore.read() == [CREATE, LIST]


def test_a_permit_that_is_given_back_wakes_the_first() -> None:
    semaphore = Semaphore()
    semaphore.waiting(OTHER)
    assert semaphore.machine.ahead == 1
    assert semaphore.apply(At(LEASES, s.PermitsChanged(names=True))) == [LIST]
    granted = semaphore.list(LEASES)
    assert granted[0] == At(LEASES, s.UnwatchPermits(names=False))
    assert granted[-1] == e.Grant()


def test_one_who_is_woken_in_vain_watches_again() -> None:
    semaphore = Semaphore()
    semaphore.waiting(OTHER)
    semaphore.apply(At(LEASES, s.PermitsChanged(names=True)))
    assert semaphore.list(LEASES, OTHER) == [At(LEASES, s.WatchPermits(names=True))]


def test_a_permit_is_lost_for_itself() -> None:
    semaphore = Semaphore(2, wanted=2)
    semaphore.with_nodes()
    semaphore.list(LEASES)
    one, other = semaphore.machine.permits
    assert one.apply(e.HeldTooLong())[0] == e.Lose(e.Loss.MAX_HOLD)
    assert other.valid
    assert semaphore.apply(e.Leave()) == []
    assert other.valid


# --- the limit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [2, 3])
def test_a_raised_limit_wakes_the_first(told: int) -> None:
    semaphore = Semaphore()
    semaphore.waiting(OTHER)
    look = [At(LEASES, s.WatchPermits(names=False)), LIST]
    assert semaphore.apply(At(LEASES, s.PermitsChanged(names=False))) == look
    semaphore.read(2, setting(told))
    assert semaphore.list(LEASES, OTHER)[-1] == e.Grant()


def test_one_who_wants_more_than_a_lowered_limit_is_refused() -> None:
    semaphore = Semaphore(3, wanted=3)
    semaphore.waiting(OTHER)
    semaphore.apply(At(LEASES, s.PermitsChanged(names=False)))
    semaphore.read(4, setting(2))
    assert semaphore.list(LEASES, OTHER) == [e.Refuse(e.Why.BEYOND_LIMIT)]
    nodes = [at for at in semaphore.apply(e.Leave()) if type(at.what) is e.Delete]
    assert len(nodes) == 4


def test_one_who_wants_more_than_the_limit_is_refused_in_the_queue() -> None:
    assert Semaphore(3, wanted=3).read(0, setting(2)) == [e.Refuse(e.Why.BEYOND_LIMIT)]


def test_the_limit_in_the_code_is_written_where_none_is() -> None:
    write = At(LEASES, s.WriteLimit(b'{"v":1,"limit":2}', 7))
    assert Semaphore(2).read(0, b"127.0.0.1") == [write]


def test_a_limit_that_is_set_while_the_permits_are_made_counts() -> None:
    semaphore = Semaphore(2)
    semaphore.with_nodes()
    semaphore.read(2, setting(1))
    semaphore.list(LEASES, OTHER)
    assert semaphore.machine.state is SemaphoreState.WAITING


# --- one who only tries ---------------------------------------------------------------------------


def test_one_who_tries_makes_no_node_that_could_be_too_many() -> None:
    semaphore = Semaphore(2, wanted=2, try_only=True)
    assert semaphore.read(1) == [e.Busy()]
    assert semaphore.machine.ahead == 1


def test_one_who_tries_waits_in_the_queue_where_permits_are_free() -> None:
    semaphore = Semaphore(try_only=True)
    semaphore.create(LOCKS)
    semaphore.list(LOCKS, AHEAD)
    assert semaphore.read() == []
    assert semaphore.machine.ahead is None
    semaphore.apply(At(LOCKS, e.Changed(AHEAD, deleted=True)))
    assert semaphore.list(LOCKS) == [At(LEASES, s.ReadLimit())]
    assert semaphore.read(1) == [e.Busy()]


def test_one_who_tries_does_not_wait_for_a_permit() -> None:
    semaphore = Semaphore(try_only=True)
    semaphore.with_nodes()
    assert semaphore.list(LEASES, OTHER) == [e.Busy()]
    left = [at.what for at in semaphore.apply(e.Leave())]
    assert [effect.name for effect in left] == ["_c_2-lease-0000000005", "_c_1-lock-0000000004"]
