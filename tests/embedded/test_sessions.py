"""Sessions of the embedded server: their timeouts, their ends, and how they go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distlock.jute import pack_buffer, pack_integer, pack_text, pack_texts
from tests.embedded.raw import RawClient, event
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from distlock.embedded.server import EmbeddedZooKeeper

CREATE, PING, CLOSE, SET_WATCHES = 1, 11, -11, 101
OPEN = pack_integer(1) + pack_integer(31) + pack_text("world") + pack_text("anyone")
EPHEMERAL = pack_text("/mine") + pack_buffer(b"") + OPEN + pack_integer(1)


@pytest.mark.parametrize(("asked", "granted"), [(0.01, 500), (7, 7000), (900, 40000), (-1, 500)])
def test_the_timeout_is_negotiated(embedded: EmbeddedZooKeeper, asked: float, granted: int) -> None:
    with RawClient(embedded.port) as raw:
        assert raw.greet(asked).timeout == granted


def test_a_silent_client_is_disconnected_and_its_ephemeral_nodes_go(
    embedded: EmbeddedZooKeeper, client: KazooClient
) -> None:
    with RawClient(embedded.port) as raw:
        raw.greet(0.5)
        assert raw.ask(CREATE, EPHEMERAL)[0] == 0
        assert raw.closed()
    assert not client.exists("/mine")


def test_a_session_outlives_its_connection_until_its_time_is_over(
    embedded: EmbeddedZooKeeper, client: KazooClient
) -> None:
    with RawClient(embedded.port) as raw:
        raw.greet(2)
        raw.ask(CREATE, EPHEMERAL)
    eventually(lambda: len(embedded.connections) == 1, PATIENCE)
    assert client.exists("/mine")
    eventually(lambda: not client.exists("/mine"), PATIENCE)


def test_a_session_goes_on_over_another_connection(
    embedded: EmbeddedZooKeeper, client: KazooClient
) -> None:
    with RawClient(embedded.port) as former, RawClient(embedded.port) as later:
        began = former.greet(30)
        former.ask(CREATE, EPHEMERAL)
        went_on = later.greet(30, began.session_id, began.password)
        assert went_on == began
        assert former.closed()
        assert later.ask(PING)[0] == 0
        assert client.exists("/mine")
        later.ask(CLOSE)
        assert later.closed()
    assert not client.exists("/mine")


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
        raw.send(pack_integer(-8) + pack_integer(SET_WATCHES) + body)
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
