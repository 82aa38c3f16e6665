"""Clients that break the protocol: each is disconnected, and nobody else notices."""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

from distlock.embedded import server as server_module
from distlock.embedded.server import EmbeddedZooKeeper
from distlock.jute import pack_boolean, pack_buffer, pack_integer, pack_text
from tests.embedded.raw import RawClient
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE

GET_DATA = 4


@pytest.fixture(autouse=True)
def bystander(client: KazooClient) -> Iterator[None]:
    """Another client, which is served all the time."""
    client.create("/bystander", b"fine", ephemeral=True)
    session = client.client_id
    yield
    assert client.get("/bystander")[0] == b"fine"
    assert client.client_id == session


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a message of 1195725856 bytes"),
        (pack_integer(2**31 - 1), "a message of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "a message of -1 bytes"),
        (pack_buffer(b""), "ends within a field"),
        (pack_buffer(b"\xff" * 20), "ends within a field"),
    ],
)
def test_garbage_closes_the_connection(
    embedded: EmbeddedZooKeeper, caplog: pytest.LogCaptureFixture, garbage: bytes, reason: str
) -> None:
    with RawClient(embedded.port) as raw:
        raw.send_bytes(garbage)
        assert raw.closed()
    assert reason in caplog.text
    assert "The embedded ZooKeeper closes the connection from ('127.0.0.1'," in caplog.text


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        pack_integer(1) + pack_integer(GET_DATA),
        pack_integer(1) + pack_integer(GET_DATA) + pack_integer(2**31 - 1),
        pack_integer(1) + pack_integer(GET_DATA) + pack_buffer(b"\xff\xfe") + pack_boolean(False),
        pack_integer(1) + pack_integer(101) + bytes(8) + pack_integer(2**31 - 1),
        pack_integer(1) + pack_integer(14) + pack_integer(1),
    ],
)
def test_a_malformed_request_closes_the_connection(
    embedded: EmbeddedZooKeeper, caplog: pytest.LogCaptureFixture, request_: bytes
) -> None:
    with RawClient(embedded.port) as raw:
        raw.greet(30)
        raw.send(request_)
        assert raw.closed()
    assert "closes the connection" in caplog.text


@pytest.mark.parametrize("half", [b"", b"\0", pack_buffer(bytes(44))[:-1]])
def test_a_client_that_asks_for_no_session_in_time_is_disconnected(
    embedded: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch, half: bytes
) -> None:
    monkeypatch.setattr(server_module, "GREETING_TIMEOUT", 0.3)
    with RawClient(embedded.port) as raw:
        raw.send_bytes(half)
        assert raw.closed()


def test_half_a_request_and_silence_ends_the_session(embedded: EmbeddedZooKeeper) -> None:
    with RawClient(embedded.port) as raw:
        raw.greet(0.5)
        raw.send_bytes(pack_integer(1000) + b"half")
        assert raw.closed()


def test_hundreds_of_silent_connections_keep_nobody_out(
    embedded: EmbeddedZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as crowd, RawClient(embedded.port) as guest:
        guest.greet(30)
        for _ in range(800):
            crowd.enter_context(RawClient(embedded.port))
        with RawClient(embedded.port) as late:
            assert late.greet(30).session_id
        assert guest.ask(11)[0] == 0
        assert len(embedded.connections) <= server_module.MOST_CONNECTIONS
    assert f"there are more than {server_module.MOST_CONNECTIONS}" in caplog.text


def test_a_client_that_never_reads_costs_little_memory_and_then_its_session(
    embedded: EmbeddedZooKeeper, client: KazooClient
) -> None:
    client.create("/large", b"x" * 500_000)
    request_ = pack_integer(1) + pack_integer(GET_DATA) + pack_text("/large") + pack_boolean(False)
    tracemalloc.start()
    try:
        with RawClient(embedded.port) as raw:
            raw.greet(2)
            raw.send(*[request_] * 2000)  # for a gigabyte
            eventually(lambda: len(embedded.sessions) == 1, PATIENCE)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_slow_reader_gets_every_reply(embedded: EmbeddedZooKeeper, client: KazooClient) -> None:
    client.create("/large", b"x" * 500_000)
    request_ = pack_integer(GET_DATA) + pack_text("/large") + pack_boolean(False)
    with RawClient(embedded.port) as raw:
        raw.greet(30)
        raw.send(*[pack_integer(xid) + request_ for xid in range(40)])
        assert [raw.receive().integer() for _ in range(40)] == list(range(40))


def test_an_answer_does_not_wait_for_an_acknowledgement(embedded: EmbeddedZooKeeper) -> None:
    """It would take 40 ms: Nagle's algorithm meets a delayed acknowledgement."""
    for connection in embedded.connections:
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
