"""What is sent for a hold, counted on the wire."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from distlock import zk_lock
from distlock.contenders.contender import QueuedContender
from distlock.session.registry import session_for
from tests.contenders.tools import KEY, Waiter, quiet
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, held_back

pytestmark = pytest.mark.usefixtures("patient", "tree")

JOIN = ["Create2", "GetChildren"]


@pytest.fixture
def sent(requests: list[str], monkeypatch: pytest.MonkeyPatch, tree: Tree) -> list[str]:
    """What this process sends from now on; no heartbeat of a slow machine sets a watch.

    The line is an old one: somebody else's transactions between two of ours, as where the server
    removes containers, make no contender doubt that it is the same line.
    """
    monkeypatch.setattr(QueuedContender, "deadline_renewed", lambda _: None)
    tree.client.ensure_path(f"{tree.path(KEY)}/keeps-the-parents")
    with tree.client.transaction() as transaction:
        for _ in range(100):
            transaction.create(f"{tree.path(KEY)}/was-here")
            transaction.delete(f"{tree.path(KEY)}/was-here")
    quiet("default", "other")
    requests.clear()
    return requests


def taken(sent: list[str]) -> list[str]:
    """What has been sent since the last call, without heartbeats."""
    found = [request for request in sent if request != "Sync"]
    sent.clear()
    return found


@pytest.mark.parametrize("handoff", [0, 3])
def test_a_free_lock_costs_one_round_trip_and_a_delete(
    tree: Tree, sent: list[str], handoff: int
) -> None:
    with zk_lock(KEY, handoff=handoff):
        assert taken(sent) == JOIN
    tree.await_line(KEY, 0)
    assert taken(sent) == ["Delete"]


@pytest.mark.parametrize("handoff", [0, 3])
def test_who_holds_asks_nobody(sent: list[str], handoff: int) -> None:
    lock = zk_lock(KEY, handoff=handoff)
    with lock as hold:
        taken(sent)
        with lock:
            hold.check()
        assert lock.held
        assert not hold.lost
        assert hold.valid_for() > 0
        assert taken(sent) == []


def test_of_those_behind_one_of_their_process_only_the_first_asks_and_once(
    tree: Tree, sent: list[str], make_owner: MakeOwner
) -> None:
    with zk_lock(KEY):
        taken(sent)
        waiters = [Waiter(tree, make_owner) for _ in range(3)]
        assert taken(sent) == ["Create2", "GetData", "Create2", "Create2"]
        tree.await_watches(tree.path(KEY))
    for _ in range(3):
        tree.await_line(KEY, 3)
        waiters.append(Waiter(tree, make_owner))
        waiters.pop(0).release()
    assert taken(sent) == ["Delete", *["Create2", "Delete"] * 3]
    for waiter in waiters:
        waiter.release()
    tree.await_watches()
    assert taken(sent) == [*["Delete"] * 3, "_RemoveWatches"]


def test_of_those_who_come_at_once_the_first_alone_lists(
    tree: Tree, sent: list[str], make_owner: MakeOwner
) -> None:
    lock, session = zk_lock(KEY), session_for()

    def creates_under_way(number: int) -> bool:
        client: Any = session._client  # one that finds another thread sending is queued
        asked = [type(one[0]).__name__ for one in (*client._pending, *client._queue)]
        return asked.count("Create2") == number

    owners = [make_owner() for _ in range(3)]
    granted = []
    with held_back(session):  # or the first answer would be read before the last create
        for number, owner in enumerate(owners, start=1):
            granted.append(owner.submit(lock.acquire, timeout=3 * PATIENCE))
            eventually(partial(creates_under_way, number), PATIENCE, "one more create")
    for owner, one in zip(owners, granted, strict=True):
        assert one.result(PATIENCE)
        owner.now(lock.release)
    tree.await_watches()
    kinds = Counter(taken(sent))
    assert kinds.pop("GetData") in {1, 2}  # the third may come after the second's answer
    assert kinds == {"Create2": 3, "Delete": 3, "GetChildren": 1, "_RemoveWatches": 1}


def test_who_is_second_behind_another_process_lists_once(
    tree: Tree, holder: Owner, sent: list[str], make_owner: MakeOwner
) -> None:
    waiter = Waiter(tree, make_owner)
    assert taken(sent) == [*JOIN, "GetData"]
    holder.now(zk_lock(KEY, using="other").release)
    assert waiter.granted.result(PATIENCE)
    quiet("default", "other")
    assert taken(sent) == ["Delete"]  # the holder's
    waiter.release()


def test_who_waits_for_a_turn_sends_nothing(
    tree: Tree, sent: list[str], make_owner: MakeOwner
) -> None:
    with zk_lock(KEY, handoff=10):
        taken(sent)
        waiters = [Waiter(tree, make_owner, handoff=10) for _ in range(4)]
    for waiter in waiters:
        waiter.release()
    tree.await_line(KEY, 0)
    assert taken(sent) == ["Delete"]


@pytest.mark.parametrize("handoff", [0, 3])
def test_a_refused_try_leaves_nothing(
    tree: Tree, holder: Owner, sent: list[str], handoff: int
) -> None:
    assert not zk_lock(KEY, handoff=handoff).acquire(blocking=False)
    tree.await_line(KEY, 1)
    quiet()
    assert [one for one in taken(sent) if one not in {"GetData", "_RemoveWatches"}] == [
        *JOIN,
        "Delete",
    ]
    tree.await_watches()
    assert holder.now(lambda: zk_lock(KEY, using="other").held)


def test_a_try_behind_one_of_its_process_takes_one_round_trip(
    sent: list[str], make_owner: MakeOwner
) -> None:
    with zk_lock(KEY):
        taken(sent)
        assert not make_owner().now(zk_lock(KEY).acquire, timeout=0)
        quiet()
        assert taken(sent) == [*JOIN, "Delete"]


def test_a_try_where_one_of_its_process_has_its_turn_sends_nothing(
    sent: list[str], make_owner: MakeOwner
) -> None:
    with zk_lock(KEY, handoff=1):
        taken(sent)
        assert not make_owner().now(zk_lock(KEY, handoff=1).acquire, timeout=0)
        quiet()
        assert taken(sent) == []
