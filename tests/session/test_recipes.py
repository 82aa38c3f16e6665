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
from kazoo.exceptions import CancelledError
from kazoo.recipe.watchers import PatientChildrenWatch

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


def test_a_member_may_vanish_while_the_others_are_listed(path: str) -> None:
    zk = kazoo_client()
    party = zk.Party(path, "a")
    party.join()
    party.node = "vanished"
    party.create_path = f"{path}/vanished"
    assert [*party] == ["a"]
    party.leave()  # of a node that is not there


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


@pytest.mark.parametrize(("first", "step"), [(0, 1), (0.5, 0.25)])
def test_a_counter_has_one_type(path: str, first: float, step: float) -> None:
    counter = kazoo_client().Counter(path, default=first)
    assert counter.value == first
    counter += step
    assert kazoo_client("other").Counter(path, default=first).value == first + step


def test_a_barrier_holds_until_it_is_removed(path: str, make_owner: MakeOwner) -> None:
    barrier, others = (kazoo_client(using).Barrier(path) for using in ("default", "other"))
    assert others.wait(0)  # there is none
    assert barrier.remove() is False
    barrier.create()
    assert not others.wait(0.1)
    waiting = make_owner().submit(others.wait, PATIENCE)
    barrier.remove()
    assert waiting.result(PATIENCE)


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


def test_a_queue_keeps_the_order_and_the_priority(path: str) -> None:
    queue, other = (kazoo_client(using).Queue(path) for using in ("default", "other"))
    assert queue.get() is None
    assert len(queue) == 0
    for value, priority in [(b"two", 100), (b"three", 100), (b"four", 101), (b"one", 1)]:
        queue.put(value, priority)
    assert len(other) == 4
    assert [other.get() for _ in range(5)] == [b"one", b"two", b"three", b"four", None]
    with pytest.raises(TypeError):
        queue.put("no bytes")
    with pytest.raises(ValueError, match="priority"):
        queue.put(b"x", -100)


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


def test_a_consumer_waits_for_an_item(path: str, make_owner: MakeOwner) -> None:
    queue, other = (kazoo_client(using).LockingQueue(path) for using in ("default", "other"))
    assert queue.get(0.1) is None
    waiting = make_owner().submit(queue.get, PATIENCE)
    other.put(b"at last")
    assert waiting.result(PATIENCE) == b"at last"


def test_many_consumers_share_the_items(path: str, make_owner: MakeOwner) -> None:
    got: Queue[bytes] = Queue()

    def consume(using: str) -> None:
        queue = kazoo_client(using).LockingQueue(path)
        while (item := queue.get(1)) is not None:
            got.put(item)
            assert queue.consume()

    items = [str(number).encode() for number in range(20)]
    kazoo_client().LockingQueue(path).put_all(items)
    consumers = [make_owner().submit(consume, using) for using in ("default", "other") * 2]
    for one in consumers:
        one.result(PATIENCE)
    assert sorted(got.get(timeout=PATIENCE) for _ in items) == sorted(items)
    assert got.empty()


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


def test_a_contender_of_an_election_may_be_cancelled(path: str, make_owner: MakeOwner) -> None:
    with kazoo_client("other").Lock(path, "leader"):
        election = kazoo_client().Election(path, "cancelled")
        run = make_owner().submit(election.run, pytest.fail)
        eventually(lambda: len(election.contenders()) == 2)
        election.cancel()
        run.exception(PATIENCE)
        assert isinstance(run.exception(PATIENCE), CancelledError | None)


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


@pytest.mark.parametrize("recipe", ["DataWatch", "ChildrenWatch"])
def test_a_watch_whose_function_returns_false_ends(path: str, recipe: str) -> None:
    zk = kazoo_client()
    zk.ensure_path(path)
    listeners = len(zk.state_listeners)
    seen: Queue[Any] = Queue()

    @getattr(zk, recipe)(path)  # type: ignore[untyped-decorator]
    def watch(value: Any, *rest: Any) -> bool:
        seen.put(value)
        return False

    seen.get(timeout=PATIENCE)
    assert len(zk.state_listeners) == listeners
    zk.set(path, b"changed")
    zk.create(f"{path}/child")
    zk.get(path)
    assert seen.empty()


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


def test_a_watch_on_the_children_of_no_node_ends(path: str) -> None:
    seen: Queue[Any] = Queue()
    kazoo_client().ChildrenWatch(path, seen.put)
    kazoo_client("other").create(path)
    kazoo_client("other").create(f"{path}/child")
    assert kazoo_client().get_children(path) == ["child"]
    assert seen.empty()


def test_a_patient_watch_waits_until_the_children_change_no_more(path: str) -> None:
    zk, other = kazoo_client(), kazoo_client("other")
    zk.ensure_path(path)
    answer = PatientChildrenWatch(zk, path, 0.2).start()
    other.create(f"{path}/a")
    children, changed = answer.get(timeout=PATIENCE)
    assert children == ["a"]
    assert not changed.ready()
    other.create(f"{path}/b")
    changed.get(timeout=PATIENCE)
