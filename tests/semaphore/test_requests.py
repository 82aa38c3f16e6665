"""What a lease costs on the wire (design, section 6): requests, and the round trips waited for.

Curator's ``InterProcessSemaphoreV2`` sends seven requests for a lease, each after the answer to the
one before. ZooKeeper answers in order, so what is sent in one go takes one round trip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from distlock import zk_semaphore
from distlock.client import Client
from distlock.session import session_for
from tests.mutex.tools import PATIENCE, MakeOwner, forgets_all
from tests.semaphore.tools import KEY, Leases

if TYPE_CHECKING:
    from distlock.semaphore import Semaphore

GATE = ["Create2", "GetChildren", "GetData"]
LEASE = ["Create2", "GetChildren"]


@pytest.fixture
def semaphore(leases: Leases) -> Semaphore:
    """One with two leases, whose parents are there."""
    semaphore = zk_semaphore(KEY, 2)
    with semaphore:
        pass
    leases.await_(0, 0)
    forgets_all(session_for())
    return semaphore


@pytest.fixture
def goes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The requests that are sent before the answer to the first of them is there, go by go."""
    sent: list[list[str]] = []
    first: list[Any] = [None]
    submit = Client.submit

    def record(client: Client, request: Any, reply: Any) -> None:
        if first[0] not in session_for()._in_flight:
            first[0] = reply
            sent.append([])
        sent[-1].append(type(request).__name__)
        submit(client, request, reply)

    monkeypatch.setattr(Client, "submit", record)
    return sent


def test_a_lease_takes_three_round_trips_of_which_two_are_waited_for(
    semaphore: Semaphore, goes: list[list[str]]
) -> None:
    assert semaphore.acquire()
    # The delete at the gate is the third, which nobody waits for.
    assert goes == [GATE, LEASE, ["Delete"]]
    forgets_all(session_for())
    semaphore.release()
    assert goes == [GATE, LEASE, ["Delete"], ["Delete"]]


def test_a_try_that_succeeds_costs_the_same(semaphore: Semaphore, requests: list[str]) -> None:
    assert semaphore.acquire(timeout=0)
    assert requests == [*GATE, *LEASE, "Delete"]
    semaphore.release()
    assert requests == [*GATE, *LEASE, "Delete", "Delete"]


def test_several_leases_cost_a_create_each_and_no_round_trip_more(
    semaphore: Semaphore, goes: list[list[str]]
) -> None:
    assert semaphore.acquire(leases=2)
    assert goes == [GATE, ["Create2", *LEASE], ["Delete"]]
    semaphore.release(2)


def test_a_refused_try_takes_two_round_trips_and_makes_no_lease(
    semaphore: Semaphore, goes: list[list[str]]
) -> None:
    assert semaphore.acquire(leases=2)
    forgets_all(session_for())
    goes.clear()
    assert not semaphore.acquire(timeout=0)
    assert goes == [GATE, ["Delete"]]
    semaphore.release(2)


def test_a_hand_off_wakes_one_who_looks_once(
    semaphore: Semaphore, leases: Leases, make_owner: MakeOwner, requests: list[str]
) -> None:
    assert semaphore.acquire(leases=2)
    waiting = make_owner().submit(semaphore.acquire, timeout=PATIENCE)
    leases.await_head(2)
    requests.clear()
    semaphore.release()
    assert waiting.result(PATIENCE)
    # Our lease; its look at the leases; its watch on their limit, and its place at the gate.
    assert [one for one in requests if one != "Sync"] == [
        "Delete",
        "GetChildren",
        "_RemoveWatches",
        "Delete",
    ]
    semaphore.release(2)
