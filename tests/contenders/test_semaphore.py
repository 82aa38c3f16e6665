"""What a permit costs on the wire (design, section 6): requests, and the round trips waited for.

Curator's ``InterProcessSemaphoreV2`` sends seven requests for a permit, each after the answer to
the one before. ZooKeeper answers in order, so what is sent in one go takes one round trip.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from distlock import zk_semaphore
from distlock.engine.reply import Reply
from distlock.engine.zookeeper.client import Client
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.permits import KEY, Permits
from tests.kit.tools import PATIENCE, MakeOwner, forgets_all, settle

if TYPE_CHECKING:
    from distlock.locks.semaphore import Semaphore
    from tests.kit.losses import SetOptions

#: At the queue, and at the permits.
GATE = LEASE = ["GetData", "Create2", "GetChildren"]


@pytest.fixture
def semaphore(permits: Permits, set_options: SetOptions) -> Semaphore:
    """One with two permits, whose parents are there; no heartbeat comes between its requests."""
    set_options(SESSION_TIMEOUT=60)
    semaphore = zk_semaphore(KEY, 2)
    with semaphore:
        pass
    permits.await_(0, 0)
    forgets_all(session_for())
    return semaphore


@pytest.fixture
def goes(monkeypatch: pytest.MonkeyPatch) -> dict[object, list[str]]:
    """The requests that are sent in one go: by the caller, or in consequence of one answer."""
    sent: dict[object, list[str]] = {}
    answers: list[object] = [None]
    submit, settle = Client.submit, Reply.settle

    def record(client: Client, *calls: tuple[Any, Reply], **how: Any) -> None:
        of_the_caller = threading.current_thread() is threading.main_thread()
        cause = "the caller" if of_the_caller else answers[-1]
        sent.setdefault(cause, []).extend(type(request).__name__ for request, _ in calls)
        submit(client, *calls, **how)

    def note(reply: Reply, value: Any, error: BaseException | None) -> None:
        answers.append(reply)
        settle(reply, value, error)

    monkeypatch.setattr(Client, "submit", record)
    monkeypatch.setattr(Reply, "settle", note)
    return sent


def test_a_permit_takes_three_round_trips_of_which_two_are_waited_for(
    semaphore: Semaphore, goes: dict[object, list[str]]
) -> None:
    assert semaphore.acquire()
    # The delete at the queue is the third, which nobody waits for.
    assert sorted(goes.values()) == sorted([GATE, LEASE, ["Delete"]])
    goes.clear()
    semaphore.release()
    assert list(goes.values()) == [["Delete"]]


def test_a_try_that_succeeds_costs_the_same(
    semaphore: Semaphore, goes: dict[object, list[str]]
) -> None:
    assert semaphore.acquire(timeout=0)
    assert sorted(goes.values()) == sorted([GATE, LEASE, ["Delete"]])
    semaphore.release()


def test_several_permits_cost_no_round_trip_more(
    semaphore: Semaphore, goes: dict[object, list[str]]
) -> None:
    assert semaphore.acquire(leases=2)
    assert sorted(goes.values()) == sorted([GATE, [*LEASE, *LEASE], ["Delete"]])
    semaphore.release(2)


def test_a_refused_try_takes_two_round_trips_and_makes_no_lease(
    semaphore: Semaphore, requests: list[str]
) -> None:
    assert semaphore.acquire(leases=2)
    requests.clear()
    assert not semaphore.acquire(timeout=0)
    # The place at the queue is deleted, and the caller waits for that no more.
    eventually(lambda: requests == [*GATE, "Delete"], PATIENCE)
    semaphore.release(2)


def test_a_hand_off_wakes_one_who_looks_once(
    semaphore: Semaphore, permits: Permits, make_owner: MakeOwner, requests: list[str]
) -> None:
    assert semaphore.acquire(leases=2)
    waiting = make_owner().submit(semaphore.acquire, timeout=PATIENCE)
    permits.await_head(2)
    requests.clear()
    semaphore.release()
    assert waiting.result(PATIENCE)
    # Our permit; its look at the permits; its watch on their limit, and its place at the queue.
    assert [one for one in requests if one != "Sync"] == [
        "Delete",
        "GetChildren",
        "_RemoveWatches",
        "Delete",
    ]
    semaphore.release(2)


def test_one_who_gives_up_deletes_its_nodes_itself_and_the_permit_first(
    permits: Permits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else the next try, of the same thread, could still find them."""
    deleted: list[tuple[str, bool]] = []
    deletion = Client.deletion

    def record(client: Client, path: str) -> Any:
        deleted.append((path, threading.current_thread() is threading.main_thread()))
        return deletion(client, path)

    async def give_up() -> list[str]:
        waiting = asyncio.create_task(zk_semaphore(KEY, 1).aacquire(timeout=None))
        await asyncio.to_thread(permits.await_head, 1)
        settle(session_for())
        nodes = [f"{permits.path}/{permits.names()[-1]}", f"{permits.queue}/{permits.line()[0]}"]
        monkeypatch.setattr(Client, "deletion", record)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return nodes

    with zk_semaphore(KEY, 1, using="other"):
        nodes = asyncio.run(give_up())
        permits.await_(1, 0)
        settle(session_for())
        assert deleted == [(node, True) for node in nodes]
