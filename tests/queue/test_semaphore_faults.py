"""A semaphore's contender and the faults of servers, operators and callers."""

from __future__ import annotations

from contextlib import suppress

import pytest

from distlock.keys.znodes import WORN
from distlock.queue import events as e
from distlock.queue.semaphore import events as s
from distlock.queue.semaphore.events import LEASES, LOCKS, At
from distlock.queue.semaphore.states import SemaphoreState
from tests.queue.test_machine import Interrupted, interrupted_at
from tests.queue.test_semaphore_machine import AHEAD, CREATE, ENTRY, LIST, OTHER, Semaphore


def test_missing_nodes_are_made_with_the_limit_in_the_code() -> None:
    semaphore = Semaphore()
    missing = semaphore.apply(At(LOCKS, e.Created(None, e.Problem.MISSING)))
    assert missing[:3] == [
        At(LOCKS, e.MakeLine()),
        At(LEASES, e.MakeLine()),
        At(LEASES, s.WriteLimit(b'{"v":1,"limit":1}', 0)),
    ]
    assert missing[3:] == [At(LOCKS, e.Create("_c_2-lock-")), At(LOCKS, e.List())]


def test_the_node_of_the_permits_is_made_again() -> None:
    semaphore = Semaphore(2, wanted=2)
    semaphore.at_head()
    for _ in range(2):
        assert semaphore.apply(At(LEASES, e.Created(None, e.Problem.MISSING))) == []
    again = semaphore.list(LEASES, error=e.Problem.MISSING)
    assert again[0] == At(LEASES, e.MakeLine())
    assert again[2:] == [At(LEASES, e.Create("_c_3-lease-"))] * 2 + [LIST]


def test_a_node_of_the_permits_that_cannot_be_made_is_for_the_caller() -> None:
    semaphore, error = Semaphore(), OSError("no")
    semaphore.at_head()
    for answer in (e.LineMade(error), e.Created(None, e.Problem.MISSING)):
        semaphore.apply(At(LEASES, answer))
    refused = semaphore.list(LEASES, error=e.Problem.MISSING)
    assert refused == [e.Refuse(e.Why.ERROR, error)]


@pytest.mark.parametrize("when", ["queue", "limit", "create", "list", "watch"])
def test_an_unknown_error_is_for_the_caller(when: str) -> None:
    semaphore, error = Semaphore(2, wanted=2), OSError("no")
    if when == "queue":
        refused = semaphore.apply(At(LOCKS, e.Created(None, error)))
    elif when == "limit":
        refused = semaphore.read(error=error)
    elif when == "watch":
        semaphore.waiting(OTHER)
        refused = semaphore.list(LEASES, error=error)
    else:
        semaphore.at_head()
        semaphore.create(LEASES)
        if when == "create":
            semaphore.apply(At(LEASES, e.Created(None, error)))
            refused = semaphore.list(LEASES)
        else:
            semaphore.create(LEASES)
            refused = semaphore.list(LEASES, error=error)
    assert refused == [e.Refuse(e.Why.ERROR, error)]
    left = [at.what.name for at in semaphore.apply(e.Leave()) if type(at.what) is e.Delete]
    assert len([name for name in left if "lease" in name]) == {"create": 1}.get(
        when, 2 * (when in ("list", "watch"))
    )


def test_nodes_whose_creates_have_lost_their_answers_are_made_anew() -> None:
    semaphore = Semaphore(2, wanted=2)
    semaphore.at_head()
    semaphore.create(LEASES)
    semaphore.apply(e.Disconnected())
    assert semaphore.apply(e.Connected()) == [At(LEASES, e.List(sync=True))]
    lost = [f"_c_2-lease-{number:010d}" for number in (5, 6)]
    anew = semaphore.list(LEASES, *lost, OTHER, sync=True)
    assert anew[:2] == [At(LEASES, e.Delete(name, 1)) for name in lost]
    assert anew[2:] == [At(LEASES, e.Create("_c_3-lease-"))] * 2 + [LIST]


def test_a_permit_that_an_operator_breaks_is_made_anew() -> None:
    semaphore = Semaphore()
    semaphore.waiting(OTHER)
    semaphore.apply(At(LEASES, s.PermitsChanged(names=True)))
    anew = semaphore.apply(At(LEASES, e.Listed([OTHER])))
    assert At(LEASES, e.Create("_c_3-lease-")) in anew


def test_one_whose_turn_is_broken_comes_to_the_queue_anew() -> None:
    semaphore = Semaphore()
    semaphore.waiting(OTHER)
    name = "_c_1-lock-0000000004"
    assert semaphore.apply(e.Renewed()) == [At(LOCKS, e.Watch(name))]
    anew = semaphore.apply(At(LOCKS, e.Changed(name, deleted=True)))
    assert anew == [
        At(LEASES, e.Delete("_c_2-lease-0000000005", 1)),
        At(LEASES, s.UnwatchPermits(names=False)),
        At(LEASES, s.UnwatchPermits(names=True)),
        At(LOCKS, e.Delete(name, 1)),
        At(LOCKS, e.Create("_c_3-lock-")),
        At(LOCKS, e.List()),
        At(LEASES, s.ReadLimit()),
    ]


def test_a_short_cut_keeps_the_turn_though_the_deadline_has_passed() -> None:
    semaphore = Semaphore()
    semaphore.waiting(OTHER)
    semaphore.apply(e.Disconnected())
    semaphore.session.epoch = 2
    assert semaphore.apply(e.Connected()) == [LIST]
    semaphore.list(LEASES, OTHER)
    assert semaphore.machine.state is SemaphoreState.WAITING


def test_one_whose_session_has_ended_comes_to_the_queue_anew() -> None:
    semaphore = Semaphore()
    semaphore.waiting(OTHER)
    semaphore.apply(e.Disconnected())
    semaphore.session.id = 2
    anew = semaphore.apply(e.Connected())
    assert anew[-3:] == [At(LOCKS, e.Create("_c_3-lock-")), *ENTRY[1:]]


def test_a_session_is_proven_before_a_grant() -> None:
    semaphore = Semaphore()
    semaphore.with_nodes()
    semaphore.session.running = False
    assert semaphore.list(LEASES) == [At(LEASES, e.Prove())]
    semaphore.session.running = True
    assert semaphore.apply(At(LEASES, e.Proved())) == [LIST]
    assert semaphore.list(LEASES)[-1] == e.Grant()


def test_a_worn_queue_begins_anew() -> None:
    semaphore = Semaphore(number=WORN)
    semaphore.create(LOCKS)
    assert semaphore.list(LOCKS)[-1] == At(LOCKS, e.ReadLine())
    assert semaphore.apply(At(LOCKS, e.LineRead(token=1))) == [At(LOCKS, e.RemoveLine(0))]
    semaphore.number = 0
    semaphore.apply(At(LOCKS, e.LineRemoved()))
    semaphore.create(LOCKS)
    semaphore.list(LOCKS)
    assert semaphore.read() == [CREATE._replace(what=e.Create("_c_3-lease-")), LIST]


# --- leaving --------------------------------------------------------------------------------------


def test_one_who_leaves_before_the_answers_deletes_each_node() -> None:
    semaphore = Semaphore(2, wanted=2)
    semaphore.at_head()
    semaphore.create(LEASES)
    left = semaphore.apply(e.Leave())
    assert [at.what.name for at in left] == ["_c_2-lease-0000000005", "_c_1-lock-0000000004"]
    assert not semaphore.machine.done
    assert semaphore.create(LEASES) == [At(LEASES, e.Delete("_c_2-lease-0000000006", 1))]
    assert semaphore.machine.done


def test_one_who_leaves_before_the_turn_leaves_the_queue() -> None:
    semaphore = Semaphore()
    assert semaphore.apply(e.Leave()) == []
    assert not semaphore.machine.done
    assert semaphore.create(LOCKS) == [At(LOCKS, e.Delete("_c_1-lock-0000000004", 1))]
    assert semaphore.machine.done


def test_whoever_is_interrupted_in_its_join_leaves_nothing() -> None:
    """An exception may land before any line of the join."""
    for line_number in range(200):
        semaphore = Semaphore(joined=False)
        with suppress(Interrupted):
            interrupted_at(line_number, lambda one=semaphore: one.apply(e.Join()))  # type: ignore[misc]
        complete = len(semaphore.machine._effects) == len(ENTRY)
        semaphore.apply(e.Leave(sure=False))
        semaphore.apply(At(LOCKS, e.Listed([AHEAD], sync=True)))
        assert semaphore.machine.done
        if complete:
            break
    assert line_number > 20
