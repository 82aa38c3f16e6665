"""The embedded server: where it listens, how it ends, and what goes by itself."""

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
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import PATIENCE


def test_it_listens_on_this_machine_only(embedded: EmbeddedZooKeeper) -> None:
    assert embedded._listening is not None
    assert embedded._listening.getsockname() == ("127.0.0.1", embedded.port)


def test_a_port_in_use_is_an_error(embedded: EmbeddedZooKeeper) -> None:
    with pytest.raises(OSError, match="in use"):
        EmbeddedZooKeeper(port=embedded.port)


def test_it_ends_while_clients_are_connected() -> None:
    with EmbeddedZooKeeper() as server:
        client = KazooClient(server.hosts)
        client.start(PATIENCE)
    assert not server.connections
    client.stop()
    client.close()


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


def test_it_ends_by_itself_when_nobody_is_connected() -> None:
    with EmbeddedZooKeeper(idle=1.5) as server:
        with raw_client(server.hosts):
            assert not server.wait(2.5)
        assert server.wait(PATIENCE)


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


def test_empty_containers_go_by_themselves(
    embedded: EmbeddedZooKeeper, client: KazooClient
) -> None:
    embedded.tree.reap_after = 0.05
    embedded.tree.create("/container", container=True)
    embedded.tree.create("/new-container", container=True)
    client.create("/container/child")
    client.delete("/container/child")
    eventually(
        lambda: sorted(client.get_children("/")) == ["new-container", "zookeeper"],
        PATIENCE,
    )
