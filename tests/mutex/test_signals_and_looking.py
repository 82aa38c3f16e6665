"""What the signals carry, and what participants() and holder() tell about the line."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from distlock import Mutex, lock_acquired, lock_contended, lock_released, zk_lock
from distlock.owner.owner import label
from distlock.session.registry import session_for
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, await_connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.dispatch import Signal

pytestmark = pytest.mark.usefixtures("tree")


@contextmanager
def received(*signals: Signal) -> Iterator[list[tuple[Signal, dict[str, Any]]]]:
    """All that is sent in the block."""
    said: list[tuple[Signal, dict[str, Any]]] = []

    def receive(*, signal: Signal, **facts: Any) -> None:
        said.append((signal, {**facts, "thread": threading.get_ident()}))

    for signal in signals:
        signal.connect(receive)
    try:
        yield said
    finally:
        for signal in signals:
            signal.disconnect(receive)


def test_one_hold_is_announced_once_however_often_it_is_entered() -> None:
    with received(lock_acquired, lock_released) as said, zk_lock("key") as hold:
        with zk_lock("key"):
            pass
        assert [signal for signal, _ in said] == [lock_acquired]
        ((_, facts),) = said
        assert facts["sender"] is Mutex
        assert facts["key"] == "key"
        assert facts["hold"] is hold
        assert facts["thread"] == threading.get_ident()
        assert 0 <= facts["waited"] < 5


def test_the_last_release_is_announced_with_the_time_held() -> None:
    with received(lock_released) as said:
        with zk_lock("key") as hold:
            assert said == []
        ((_, facts),) = said
    assert facts["sender"] is Mutex
    assert facts["key"] == "key"
    assert facts["hold"] is hold
    assert 0 <= facts["held_for"] < 5


@pytest.mark.usefixtures("holder")
def test_an_acquire_that_was_refused_is_announced() -> None:
    with received(lock_acquired, lock_contended, lock_released) as said:
        assert not zk_lock("key").acquire(timeout=0.1)
    ((signal, facts),) = said
    assert signal is lock_contended
    assert facts["sender"] is Mutex
    assert facts["key"] == "key"
    assert 0.1 <= facts["waited"] < 1


@pytest.mark.usefixtures("holder")
def test_a_receiver_that_fails_harms_nobody(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    def fail(**facts: Any) -> None:
        raise RuntimeError("a mistake in a receiver")

    signals = (lock_acquired, lock_contended, lock_released)
    for signal in signals:
        signal.connect(fail)
    try:
        with received(*signals) as said, zk_lock("free"):
            assert not zk_lock("key").acquire(timeout=0)
    finally:
        for signal in signals:
            signal.disconnect(fail)
    assert [signal for signal, _ in said] == list(signals)
    tree.await_line("free", 0)
    assert caplog.text.count("a mistake in a receiver") >= len(signals)


# --- looking -------------------------------------------------------------------------------------


def test_nobody_is_in_line_for_a_lock_that_nobody_has_ever_used() -> None:
    assert zk_lock("key").participants() == []
    assert zk_lock("key").holder() is None
    assert not zk_lock("key").locked()


def test_participants_are_listed_in_order_with_what_their_nodes_say(
    tree: Tree, holder: Owner, make_owner: MakeOwner
) -> None:
    def wait() -> None:
        with label("GET /buy/42"), zk_lock("key", timeout=PATIENCE):
            pass

    waiting = make_owner().submit(wait)
    line = tree.await_line("key", 2)
    first, second = zk_lock("key").participants()
    assert [first.path, second.path] == [f"{tree.path('key')}/{name}" for name in line]
    assert first == zk_lock("key").holder()
    assert zk_lock("key").locked()
    assert first.token < second.token
    assert [first.sequence, second.sequence] == [int(name[-10:]) for name in line]
    assert first.session_id == session_for("other").id
    assert second.session_id == session_for().id
    assert first.owner_id != second.owner_id
    assert (first.label, second.label) == ("", "GET /buy/42")
    assert not second.peer
    assert second.host == socket.gethostname()
    assert second.pid == os.getpid()
    assert second.since is not None
    assert "GET /buy/42" in str(second)
    holder.now(zk_lock("key", using="other").release)
    waiting.result(PATIENCE)


@pytest.mark.parametrize("look", ["holder", "locked"])
@pytest.mark.parametrize("gone", [0, 2])
def test_only_the_first_is_read_to_know_who_holds(
    tree: Tree, requests: list[str], monkeypatch: pytest.MonkeyPatch, look: str, gone: int
) -> None:
    tree.client.ensure_path(tree.path("key"))
    prefix = f"{tree.path('key')}/_c_{uuid4()}-lock-"
    nodes = [tree.client.create(prefix, b"", ephemeral=True, sequence=True) for _ in range(9)]
    session = await_connection()
    listed = session.children

    def leave_after_the_list(path: str, done: Any) -> None:
        def answer(*outcome: Any) -> None:
            for node in nodes[:gone]:
                tree.client.delete(node)
            done(*outcome)

        listed(path, answer)

    monkeypatch.setattr(session, "children", leave_after_the_list)
    requests.clear()
    found = getattr(zk_lock("key"), look)()
    assert found is True or found.path == nodes[gone]
    looks = [request for request in requests if request.startswith("Get")]  # ours, not the tree's
    assert looks == ["GetChildren", *["GetData"] * (gone + 1)]
    for node in nodes[gone:]:
        tree.client.delete(node)


@pytest.mark.parametrize("data", [None, b"10.0.0.1"])
def test_a_peer_whose_data_cannot_be_read_is_listed_as_such(tree: Tree, data: bytes | None) -> None:
    with zk_lock("key"):
        prefix = f"{tree.path('key')}/_c_{uuid4()}-lock-"
        path = tree.client.create(prefix, data, ephemeral=True, sequence=True)
        _, peer = zk_lock("key").participants()
        assert peer.path == path
        assert peer.peer
        assert peer.session_id == tree.client.client_id[0]
        assert (peer.host, peer.label, peer.pid, peer.since) == ("", "", None, None)
        assert "peer" in str(peer)
        tree.client.delete(path)


def test_what_is_no_lock_node_is_not_listed_and_not_waited_for(tree: Tree) -> None:
    with zk_lock("key"):
        names = ["config", "lock-", "lock-12", "x-lock-000000000a", "lease-0000000000", "_c_-"]
        for name in names:
            tree.client.create(f"{tree.path('key')}/{name}", b"")
    assert zk_lock("key").participants() == []
    with zk_lock("key", timeout=0):  # CURATOR-43
        assert len(zk_lock("key").participants()) == 1
