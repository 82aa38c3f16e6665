"""kazoo's recipes on `kazoo_client`, by the intents of kazoo's own tests.

These are its KazooPartyTests, KazooShallowPartyTests, KazooCounterTests, KazooBarrierTests,
KazooDoubleBarrierTests, KazooQueueTests, KazooLockingQueueTests, KazooElectionTests,
KazooDataWatcherTests, KazooChildrenWatcherTests and KazooPatientChildrenWatcherTests. The aliases
"default" and "other" stand for two processes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from distlock import kazoo_client
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner

pytestmark = pytest.mark.usefixtures("two_sessions")


@pytest.fixture
def path(namespace: str) -> Iterator[str]:
    """A node for the recipe, beside those of the locks."""
    kazoo_client().ensure_path(f"{namespace}-recipes")
    yield f"{namespace}-recipes/one"
    kazoo_client().delete(f"{namespace}-recipes", recursive=True)


def test_a_counter_counts_for_all(path: str) -> None:
    one, other = (kazoo_client(using).Counter(path) for using in ("default", "other"))
    threads = [
        threading.Thread(target=lambda counter=counter: [counter.__add__(1) for _ in range(20)])
        for counter in (one, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert one.value == other.value == 40
    one -= 2
    assert (one.pre_value, one.post_value) == (40, 38)
    with pytest.raises(TypeError):
        one.__add__("1")


@pytest.mark.parametrize("clients", [2, 3])
def test_a_double_barrier_lets_all_in_and_all_out(
    path: str, clients: int, make_owner: MakeOwner
) -> None:
    inside: Queue[int] = Queue()
    outside: Queue[int] = Queue()
    leave = threading.Event()

    def pass_through(number: int) -> None:
        client = kazoo_client(("default", "other")[number % 2])
        barrier = client.DoubleBarrier(path, clients, str(number))
        barrier.enter()
        inside.put(number)
        assert leave.wait(PATIENCE)
        barrier.leave()
        outside.put(number)

    kazoo_client().ensure_path(path)
    owners = [make_owner() for _ in range(clients)]
    first, *rest = (owner.submit(pass_through, number) for number, owner in enumerate(owners[:-1]))
    eventually(lambda: len(kazoo_client().get_children(path)) == clients - 1)
    assert inside.empty()
    last = owners[-1].submit(pass_through, clients - 1)
    assert {inside.get(timeout=PATIENCE) for _ in owners} == {*range(clients)}
    assert outside.empty()
    leave.set()
    assert {outside.get(timeout=PATIENCE) for _ in owners} == {*range(clients)}
    for done in (first, *rest, last):
        done.result(PATIENCE)


def test_one_contender_of_an_election_leads_at_a_time(path: str, make_owner: MakeOwner) -> None:
    leading: Queue[str] = Queue()
    step_down = {using: threading.Event() for using in ("default", "other")}
    elections = {using: kazoo_client(using).Election(path, using) for using in step_down}

    def lead(using: str) -> None:
        leading.put(using)
        assert step_down[using].wait(PATIENCE)

    runs = {using: make_owner().submit(one.run, lead, using) for using, one in elections.items()}
    first = leading.get(timeout=PATIENCE)
    eventually(lambda: len(elections[first].contenders()) == 2)
    assert leading.empty()
    step_down[first].set()
    second = leading.get(timeout=PATIENCE)
    assert {first, second} == {*step_down}
    step_down[second].set()
    for run in runs.values():
        run.result(PATIENCE)
    with pytest.raises(ValueError, match="callable"):
        elections[first].run("no function")
