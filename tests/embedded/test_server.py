"""What the embedded server does by itself: where it listens, how it ends, and its sessions."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient

from distlock.embedded import server as server_module
from distlock.embedded import tree as tree_module
from distlock.embedded.server import EmbeddedZooKeeper
from distlock.embedded.tree import MemoryTree
from distlock.jute import pack_integer, pack_texts
from tests.embedded.raw import RawClient, event
from tests.kit.helpers import raw_client


def test_it_listens_on_this_machine_only(embedded: EmbeddedZooKeeper) -> None:
    assert embedded._listening is not None
    assert embedded._listening.getsockname() == ("127.0.0.1", embedded.port)


def test_a_port_in_use_is_an_error(embedded: EmbeddedZooKeeper) -> None:
    with pytest.raises(OSError, match="in use"):
        EmbeddedZooKeeper(port=embedded.port)


def test_transaction_ids_rise_over_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedZooKeeper() as former:
        pass
    monkeypatch.setattr(server_module, "EPOCH", server_module.EPOCH - 1)  # a second later
    with EmbeddedZooKeeper() as later:
        assert later.tree.zxid > former.tree.zxid + 1_000_000


def test_session_ids_differ_after_a_restart_at_once() -> None:
    def session_id() -> Any:
        with EmbeddedZooKeeper() as server, raw_client(server.hosts) as client:
            return client.client_id[0]

    assert session_id() < session_id()


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (b"ruok", "imok"),
        (b"isro", "rw"),
        (b"envi", "Environment:\nzookeeper.version=3.8.0-"),
        (b"srvr", "Mode: standalone"),
    ],
)
def test_it_answers_four_letter_words(client: KazooClient, word: bytes, answer: str) -> None:
    assert answer in client.command(word)


def test_an_empty_container_stays_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = MemoryTree()
    tree.create("/container", container=True)
    tree.create("/container/child")
    tree.delete("/container/child")
    began = time.monotonic()
    for seconds, there in ((0, True), (59, True), (61, False)):
        clock = SimpleNamespace(time=time.time, monotonic=lambda at=began + seconds: at)
        monkeypatch.setattr(tree_module, "time", clock)
        tree.reap_when_due()
        assert ("container" in tree.children("/")) is there


# --- sessions ------------------------------------------------------------------------------------


CREATE, PING, CLOSE, SET_WATCHES = 1, 11, -11, 101


@pytest.mark.parametrize(("asked", "granted"), [(0.01, 500), (7, 7000), (900, 40000), (-1, 500)])
def test_the_timeout_is_negotiated(embedded: EmbeddedZooKeeper, asked: float, granted: int) -> None:
    with RawClient(embedded.port) as raw:
        assert raw.greet(asked).timeout == granted


@pytest.mark.parametrize("password", [b"", bytes(16), b"x" * 1000])
def test_another_password_does_not_get_a_session(
    embedded: EmbeddedZooKeeper, password: bytes
) -> None:
    with RawClient(embedded.port) as owner, RawClient(embedded.port) as thief:
        began = owner.greet(30)
        assert thief.greet(30, began.session_id, password) == (0, 0, bytes(16))
        assert thief.closed()
        assert owner.ask(PING)[0] == 0


def test_watches_are_set_again_and_missed_events_are_told(
    embedded: EmbeddedZooKeeper, client: KazooClient
) -> None:
    for path in ("/same", "/changed", "/deleted", "/parent", "/parent-same"):
        client.create(path)
    seen = client.get("/parent-same")[1].czxid
    client.set("/changed", b"x")
    client.delete("/deleted")
    client.create("/parent/child")
    client.create("/created")
    watches = [
        ["/same", "/changed", "/deleted"],
        ["/created", "/never"],
        ["/parent", "/parent-same"],
    ]
    body = seen.to_bytes(8, "big") + b"".join(map(pack_texts, watches))
    with RawClient(embedded.port) as raw:
        raw.greet(30)
        raw.send(pack_integer(-8) + pack_integer(101) + body)
        missed = [event(raw) for _ in range(4)]
        assert missed == [(3, "/changed"), (2, "/deleted"), (1, "/created"), (4, "/parent")]
        assert raw.receive().integer() == -8
        client.set("/same", b"x")
        client.create("/never")
        client.create("/parent-same/child")
        assert [event(raw) for _ in range(3)] == [
            (3, "/same"),
            (1, "/never"),
            (4, "/parent-same"),
        ]
