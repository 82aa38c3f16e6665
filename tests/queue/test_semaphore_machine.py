"""A semaphore's contenders, one event at a time.

Here is also all that `tests.queue.semaphore_explore` does not model: errors of the server, worn
queues, limits in the code.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from distlock.keys.znodes import WORN
from distlock.queue import events as e
from distlock.queue.local_line import LocalLine
from distlock.queue.policies import FAIR
from distlock.queue.semaphore.limits import Limit, setting
from distlock.queue.semaphore.machine import Turn
from distlock.queue.states import State
from tests.queue.semaphore_world import LEASES, LOCKS, At, Bugs, Taker
from tests.queue.test_machine import Interrupted, Session, interrupted_at
from tests.queue.world import node_of

if TYPE_CHECKING:
    from collections.abc import Sequence

OTHER = "_c_x-lease-0000000001"
AHEAD = "_c_x-lock-0000000003"
OWN = "_c_A1-lock-0000000004"


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
    return of_permit(number, e.Create(f"_c_A{attempt}-lease-"), e.LIST)


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


# --- one after the other --------------------------------------------------------------------------


def test_a_permit_takes_two_round_trips() -> None:
    semaphore = Semaphore()
    assert semaphore.at_head() == making()
    semaphore.create(1)
    assert semaphore.list(1) == [*at_locks(e.Delete(OWN, 1)), e.GRANT]
    assert semaphore.taker.valid
    assert deleted(semaphore.apply(e.Leave())) == ["_c_A2-lease-0000000005"]


def test_several_permits_are_made_in_one_go() -> None:
    semaphore = Semaphore(3, wanted=2)
    assert semaphore.at_head() == [*making(2), *making(3, 2)]
    semaphore.create(1)
    assert semaphore.list(1, OTHER) == []
    semaphore.create(2)
    assert semaphore.list(2, OTHER)[-1] == e.GRANT
    assert [permit.policy.shared for permit in semaphore.taker.permits] == [True, True]


def test_it_comes_to_the_queue_when_there_is_a_connection() -> None:
    semaphore = Semaphore(joined=False)
    semaphore.session.connected = False
    assert semaphore.apply(e.Join()) == []
    semaphore.session.connected = True
    assert semaphore.apply(e.Connected()) == coming()


def test_who_has_waited_in_the_queue_reads_the_limit_again() -> None:
    semaphore = Semaphore()
    semaphore.read()
    semaphore.create(0)
    assert semaphore.list(0, AHEAD) == at_locks(e.Watch(AHEAD))
    assert semaphore.taker.queue.ahead == 1
    again = semaphore.apply(e.Changed(AHEAD, deleted=True))
    assert again == at_locks(e.ReadLimit(), e.LIST)
    semaphore.read(0, setting(2))
    assert semaphore.list(0) == making()
    assert semaphore.limit.now == 2


def test_a_permit_that_is_given_back_wakes_the_first() -> None:
    semaphore = Semaphore()
    semaphore.waiting()
    assert semaphore.taker.permits[0].ahead == 1
    assert semaphore.apply(e.Changed(e.NAMES, deleted=False)) == of_permit(1, e.LIST)
    granted = semaphore.list(1)
    assert granted == [*of_permit(1, e.Unwatch(e.LIMIT)), *at_locks(e.Delete(OWN, 1)), e.GRANT]


def test_one_who_is_woken_in_vain_watches_again() -> None:
    semaphore = Semaphore()
    semaphore.waiting()
    semaphore.apply(e.Changed(e.NAMES, deleted=False))
    assert semaphore.list(1, OTHER) == of_permit(1, e.WatchNames())


def test_a_permit_is_lost_for_itself() -> None:
    semaphore = Semaphore(2, wanted=2)
    semaphore.at_head()
    for number in (1, 2):
        semaphore.create(number)
        semaphore.list(number)
    one, other = semaphore.taker.permits
    assert one.apply(e.HeldTooLong())[0] == e.Lose(e.Loss.MAX_HOLD)
    assert other.valid


# --- the limit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [2, 3])
def test_a_raised_limit_wakes_the_first(told: int) -> None:
    semaphore = Semaphore()
    semaphore.waiting()
    look = of_permit(1, e.WatchLimit(), e.LIST)
    assert semaphore.apply(e.Changed(e.LIMIT, deleted=False)) == look
    semaphore.read(2, setting(told), number=1)
    assert semaphore.list(1, OTHER)[-1] == e.GRANT


def test_one_who_wants_more_than_a_lowered_limit_is_refused() -> None:
    semaphore = Semaphore(2, wanted=2)
    semaphore.at_head()
    for number in (1, 2):
        semaphore.create(number)
        semaphore.list(number, OTHER)
    semaphore.read(3, setting(1), number=2)
    assert semaphore.list(2, OTHER) == [e.Refuse(e.Why.BEYOND_LIMIT)]
    assert len(deleted(semaphore.apply(e.Leave()))) == 3


def test_one_who_wants_more_than_the_limit_is_refused_in_the_queue() -> None:
    semaphore = Semaphore(3, wanted=3)
    semaphore.read(0, setting(2))
    semaphore.create(0)
    assert semaphore.list(0, AHEAD) == [e.Refuse(e.Why.BEYOND_LIMIT)]


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
    assert semaphore.answer(1, missing) == [*of_permit(1, e.MakeLine()), *making(4)]
    write = of_permit(1, e.WriteLimit(b'{"v":1,"limit":2}', 0))
    assert semaphore.answer(1, e.LineMade()) == write


# --- one who only tries ---------------------------------------------------------------------------


def test_one_who_tries_makes_no_node_that_could_be_too_many() -> None:
    semaphore = Semaphore(2, wanted=2, tries=True)
    semaphore.read(1)
    semaphore.create(0)
    assert semaphore.list(0) == [e.Busy()]
    assert semaphore.taker.queue.ahead == 1


def test_one_who_tries_waits_in_the_queue_where_permits_are_free() -> None:
    semaphore = Semaphore(tries=True)
    semaphore.read()
    semaphore.create(0)
    assert semaphore.list(0, AHEAD) == at_locks(e.Watch(AHEAD))
    semaphore.apply(e.Changed(AHEAD, deleted=True))
    semaphore.read(1)
    assert semaphore.list(0) == [e.Busy()]


def test_one_who_tries_does_not_wait_for_a_permit() -> None:
    semaphore = Semaphore(tries=True)
    semaphore.at_head()
    semaphore.create(1)
    assert semaphore.list(1, OTHER) == [e.Busy()]
    assert deleted(semaphore.apply(e.Leave())) == ["_c_A2-lease-0000000005", OWN]


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["queue", "limit", "create", "list", "line", "watch"])
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
        else:
            semaphore.answer(1, e.LineMade(error))
            refused = semaphore.answer(1, e.Created(None, e.Problem.MISSING))
    assert refused == [e.Refuse(e.Why.ERROR, error)]
    leases = [name for name in deleted(semaphore.apply(e.Leave())) if "lease" in name]
    assert len(leases) == (when in ("list", "watch"))


def test_a_permit_that_an_operator_breaks_is_made_anew() -> None:
    semaphore = Semaphore()
    semaphore.waiting()
    semaphore.apply(e.Changed(e.NAMES, deleted=False))
    anew = semaphore.answer(1, e.Listed([OTHER]))
    assert list(anew[-2:]) == making(3)


def test_one_whose_turn_is_broken_comes_to_the_queue_anew() -> None:
    semaphore = Semaphore()
    semaphore.waiting()
    assert semaphore.apply(e.Renewed()) == at_locks(e.Watch(OWN))
    anew = semaphore.apply(e.Changed(OWN, deleted=True))
    assert anew[:5] == [
        *at_locks(e.Delete(OWN, 1)),  # a failover may have brought it back
        *of_permit(1, e.Unwatch(e.LIMIT), e.Unwatch(e.NAMES)),
        *of_permit(1, e.Delete("_c_A2-lease-0000000005", 1)),
        *at_locks(e.Delete(OWN, 1)),
    ]
    assert [at.what for at in anew[5:8]] == [at.what for at in coming(3)]


def test_a_short_cut_keeps_the_turn_though_the_deadline_has_passed() -> None:
    semaphore = Semaphore()
    semaphore.waiting()
    semaphore.apply(e.Disconnected())
    semaphore.session.epoch = 2
    assert semaphore.apply(e.Connected()) == of_permit(1, e.LIST)
    semaphore.list(1, OTHER)
    assert semaphore.states == [State.HOLDING, State.WAITING]


def test_one_whose_session_has_ended_comes_to_the_queue_anew() -> None:
    semaphore = Semaphore()
    semaphore.waiting()
    semaphore.apply(e.Disconnected())
    semaphore.session.id = 2
    assert coming(3)[1].what in [
        getattr(one, "what", one) for one in semaphore.apply(e.Connected())
    ]


def test_a_session_is_proven_before_a_grant() -> None:
    semaphore = Semaphore()
    semaphore.at_head()
    semaphore.create(1)
    semaphore.session.running = False
    assert semaphore.list(1) == of_permit(1, e.Prove())
    semaphore.session.running = True
    assert semaphore.answer(1, e.Proved()) == of_permit(1, e.LIST)
    assert semaphore.list(1)[-1] == e.GRANT


def test_a_worn_queue_begins_anew() -> None:
    semaphore = Semaphore(number=WORN)
    assert semaphore.at_head()[-1:] == at_locks(e.ReadLine())
    assert semaphore.answer(0, e.LineRead(token=1)) == at_locks(e.RemoveLine(0))
    semaphore.number = 0
    assert semaphore.answer(0, e.LineRemoved()) == coming(2)
    assert semaphore.at_head() == making(3)


# --- leaving --------------------------------------------------------------------------------------


def test_one_who_leaves_before_the_answers_deletes_each_node() -> None:
    semaphore = Semaphore(2, wanted=2)
    semaphore.at_head()
    semaphore.create(1)
    assert deleted(semaphore.apply(e.Leave())) == ["_c_A2-lease-0000000005", OWN]
    assert semaphore.states == [State.LEAVING]
    assert deleted(semaphore.create(2)) == ["_c_A3-lease-0000000006"]
    assert semaphore.states == []


def test_whoever_is_interrupted_in_its_join_leaves_nothing() -> None:
    """An exception may land before any line of the join."""
    for line_number in range(200):
        options = {"limit": Limit("key", 1), "me": None, "new_prefix": lambda: "_c_A1-"}
        machine = Turn(FAIR, Session(), LocalLine(), **options)
        with suppress(Interrupted):
            interrupted_at(line_number, lambda one=machine: one.apply(e.Join()))  # type: ignore[misc]
        complete = len(machine._effects) == len(coming())
        machine.apply(e.Leave(sure=False))
        if machine.state is State.SEARCHING:
            machine.apply(e.Listed([AHEAD], sync=True))
        assert machine.state is State.LEFT
        if complete:
            break
    assert line_number > 20
