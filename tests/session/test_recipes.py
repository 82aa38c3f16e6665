"""kazoo's recipes on `kazoo_client`, by the intents of kazoo's own tests.

These are its KazooPartyTests, KazooShallowPartyTests, KazooCounterTests, KazooBarrierTests,
KazooDoubleBarrierTests, KazooQueueTests, KazooLockingQueueTests, KazooElectionTests,
KazooDataWatcherTests, KazooChildrenWatcherTests and KazooPatientChildrenWatcherTests. The aliases
"default" and "other" stand for two processes.
"""

from __future__ import annotations

import threading
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest

from distlock import kazoo_client
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("two_sessions")


@pytest.fixture
def path(namespace: str) -> Iterator[str]:
    """A node for the recipe, beside those of the locks."""
    kazoo_client().ensure_path(f"{namespace}-recipes")
    yield f"{namespace}-recipes/one"
    kazoo_client().delete(f"{namespace}-recipes", recursive=True)


@pytest.mark.parametrize("recipe", ["Party", "ShallowParty"])
def test_members_join_and_leave(path: str, recipe: str) -> None:
    parties = [getattr(kazoo_client(using), recipe)(path, using) for using in ("default", "other")]
    for party in parties:
        party.join()
        party.join()  # once more changes nothing
    assert {*parties[0]} == {"default", "other"}
    assert len(parties[0]) == 2
    parties[1].leave()
    parties[1].leave()
    assert [*parties[0]] == ["default"]


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


def test_an_item_of_a_locking_queue_is_consumed_or_released(path: str) -> None:
    queue, other = (kazoo_client(using).LockingQueue(path) for using in ("default", "other"))
    queue.put_all([b"one", b"two"])
    queue.put(b"first", priority=1)
    assert queue.get() == b"first"
    assert queue.get() == b"first"  # the same until it is consumed
    assert queue.holds_lock()
    assert not other.consume()
    assert queue.consume()
    assert other.get() == b"one"
    assert other.release()
    assert not other.release()
    assert queue.get() == b"one"
    assert len(queue) == 2


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


def test_a_data_watch_follows_a_node_that_comes_changes_and_goes(path: str) -> None:
    seen: Queue[tuple[Any, Any]] = Queue()

    @kazoo_client().DataWatch(path)  # type: ignore[untyped-decorator]
    def watch(data: Any, _: Any, event: Any) -> None:
        seen.put((data, event and event.type))

    other = kazoo_client("other")
    assert seen.get(timeout=PATIENCE) == (None, None)
    changes: list[tuple[Callable[[], Any], bytes | None, str]] = [
        (lambda: other.create(path, b"new"), b"new", "CREATED"),
        (lambda: other.set(path, b"other"), b"other", "CHANGED"),
        (lambda: other.delete(path), None, "DELETED"),
        (lambda: other.create(path, b"again"), b"again", "CREATED"),
    ]
    for change, data, event in changes:
        change()
        assert seen.get(timeout=PATIENCE) == (data, event)


def test_a_watch_on_the_children_of_a_node_follows_them(path: str) -> None:
    zk, other = kazoo_client(), kazoo_client("other")
    other.ensure_path(path)
    seen: Queue[tuple[list[str], Any]] = Queue()

    @zk.ChildrenWatch(path, send_event=True)  # type: ignore[untyped-decorator]
    def watch(children: list[str], event: Any) -> None:
        seen.put((sorted(children), event and event.type))
        zk.get_children(path)  # a callback may ask

    assert seen.get(timeout=PATIENCE) == ([], None)
    other.create(f"{path}/a")
    assert seen.get(timeout=PATIENCE) == (["a"], "CHILD")
    other.create(f"{path}/b")
    assert seen.get(timeout=PATIENCE) == (["a", "b"], "CHILD")
