"""Which events of locks are recorded, and what of them."""

from __future__ import annotations

import os
import socket

import pytest
from pytest_django import Settings

from distlock import (
    DeadlockDetected,
    LockBusy,
    LockLost,
    LockUnavailable,
    zk_leader,
    zk_lease,
    zk_lock,
    zk_rwlock,
    zk_semaphore,
)
from distlock import history as receivers
from distlock.history import Event
from distlock.models import LockEvent
from distlock.owner.owner import label
from tests.history.tools import KEY
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions
from tests.kit.tools import PATIENCE, MakeOwner, Tree

Kind = LockEvent.Kind


@pytest.fixture
def events(
    tree: Tree,  # noqa: ARG001 - makes the settings
    history: SetOptions,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> list[Event]:
    """What is recorded."""
    found: list[Event] = []
    monkeypatch.setattr(receivers, "record", found.append)
    return found


def row(events: list[Event]) -> LockEvent:
    """The row of the only event."""
    (event,) = events
    return event.row()


# --- holds ---------------------------------------------------------------------------------------


def test_each_hold_is_one_event_with_a_threshold_of_zero(
    events: list[Event], history: SetOptions
) -> None:
    history(HISTORY_SLOW=0)
    lock = zk_lock(KEY)
    with label("GET /buy/<sku>"), lock as hold, lock:
        pass
    found = row(events)
    assert (found.kind, found.using, found.key, found.name) == (Kind.HELD, "default", KEY, KEY)
    assert (found.hostname, found.pid) == (socket.gethostname(), os.getpid())
    assert found.owner == "GET /buy/<sku> (MainThread)"
    assert found.token == hold.token
    assert found.waited == hold.waited
    assert 0 < hold.waited < PATIENCE
    assert 0 < (found.held_for or 0) < PATIENCE
    assert found.detail == ""
    assert found.at.tzinfo is not None


def test_a_long_wait_is_recorded_with_its_short_hold(
    events: list[Event], history: SetOptions, tree: Tree, make_owner: MakeOwner
) -> None:
    history(HISTORY_SLOW=0.3)
    owner = make_owner()
    owner.now(zk_lock(KEY).acquire)
    events.clear()

    def wait() -> None:
        with zk_lock(KEY):
            pass

    waiting = make_owner().submit(wait)
    tree.await_line(KEY, 2)
    assert not zk_lock(KEY).acquire(timeout=0.4)
    owner.now(zk_lock(KEY).release)
    waiting.result(PATIENCE)
    found = [one for one in events if one.kind == Kind.HELD and (one.held_for or 0) < 0.3]
    assert len(found) == 1
    assert (found[0].waited or 0) >= 0.3


def test_permits_readers_leases_and_leaders_are_recorded(
    events: list[Event], history: SetOptions
) -> None:
    history(HISTORY_SLOW=0)
    with zk_semaphore(KEY, 2), zk_rwlock("other").read, zk_leader(KEY):
        pass
    with zk_lease(KEY, 60, owner="task-7"):
        pass
    rows = [event.row() for event in events]
    assert [one.name for one in rows] == [KEY, "other", KEY, KEY]
    assert [one.detail for one in rows] == ["", "Shared.", "Shared.", ""]
    assert [one.owner for one in rows] == ["MainThread"] * 3 + ["task-7"]


def test_with_little_data_in_nodes_there_is_little_in_the_history(
    events: list[Event], history: SetOptions
) -> None:
    history(HISTORY_SLOW=0, NODE_DATA="owner")
    with label("GET /secret"), zk_lock(KEY) as hold:
        (holder,) = zk_lock(KEY).participants()
    assert row(events).owner == holder.owner_id
    assert hold.released


# --- what went wrong -----------------------------------------------------------------------------


def test_a_refused_acquire_is_recorded_with_its_wait(
    events: list[Event], make_owner: MakeOwner
) -> None:
    owner = make_owner()
    owner.now(zk_lock(KEY).acquire)
    with label("POST /buy"), pytest.raises(LockBusy), zk_lock(KEY, timeout=0.2):
        pass
    found = row(events)
    assert (found.kind, found.key, found.owner) == (Kind.BUSY, KEY, "POST /buy (MainThread)")
    assert (found.waited or 0) >= 0.2
    assert found.held_for is None
    owner.now(zk_lock(KEY).release)


def test_a_broken_hold_is_recorded_at_once_and_not_as_released(
    events: list[Event], tree: Tree
) -> None:
    lock = zk_lock(KEY)
    with label("task 7"):
        lock.acquire()
        tree.client.delete(lock.participants()[0].path)
        eventually(lambda: events, PATIENCE)
        with pytest.raises(LockLost):
            lock.release()
    lost = row(events)
    assert (lost.kind, lost.owner) == (Kind.BROKEN, "task 7 (MainThread)")
    assert lost.detail.startswith("Lost: its node is gone")
    assert (lost.held_for or 0) > 0


def test_the_waiter_that_gives_way_in_a_deadlock_is_recorded(
    events: list[Event], history: SetOptions, make_owner: MakeOwner, tree: Tree
) -> None:
    history(DEADLOCK_AFTER=0.5, TIMEOUT=PATIENCE)
    older, newer = make_owner(), make_owner()
    older.now(zk_lock("a").acquire)
    newer.now(zk_lock("b").acquire)
    waiting = older.submit(zk_lock("b").acquire)
    tree.await_line("b", 2)
    with pytest.raises(DeadlockDetected):
        newer.now(zk_lock("a").acquire)
    newer.now(zk_lock("b").release)
    assert waiting.result(PATIENCE)
    found = row([event for event in events if event.kind == Kind.DEADLOCK])
    assert found.key == "a"
    assert "waits for 'a', held by" in found.detail
    assert (found.waited or 0) >= 0.5
    older.now(zk_lock("b").release)
    older.now(zk_lock("a").release)


def test_a_failed_acquire_is_recorded_with_its_reason(
    events: list[Event], history: SetOptions
) -> None:
    history(HOSTS="127.0.0.1:1", CONNECT_TIMEOUT=0.2)
    with pytest.raises(LockUnavailable), zk_lock(KEY):
        pass
    found = row(events)
    assert (found.kind, found.owner) == (Kind.FAILED, "MainThread")
    assert "ZooKeeper" in found.detail


# --- when it is on -------------------------------------------------------------------------------


def connected() -> int:
    """How many signals the history receives."""
    lists = [signal.receivers for signal in receivers._RECEIVERS]
    return sum(one[0][0] == "distlock.history" for receivers in lists for one in receivers)


def test_it_is_off_by_default_and_then_costs_nothing(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {}, "other": {"HISTORY": 0}}
    assert connected() == 0
    settings.DISTLOCK = {"default": {}, "other": {"HISTORY": 5}}
    assert connected() == 4
    receivers.connect()
    assert connected() == 4
    settings.DISTLOCK = "wrong"
    assert connected() == 0
