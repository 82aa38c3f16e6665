"""Requests that kazoo does not know, as bytes, to the embedded server and to a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from distlock.embedded.records import (
    Record,
    pack_boolean,
    pack_buffer,
    pack_integer,
    pack_step,
    pack_text,
    pack_texts,
)
from distlock.testing.fixtures import _run
from tests.embedded.raw import RawClient, event
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.embedded.server import EmbeddedZooKeeper
    from distlock.testing.server import ZooKeeper

GET_DATA, GET_CHILDREN, EXISTS = 4, 8, 3
MULTI_READ, AUTH, SET_WATCHES_2, WHO_AM_I = 22, 100, 105, 107
END = pack_step(-1, -1, end=True)


@pytest.fixture(scope="module")
def real() -> Iterator[ZooKeeper]:
    yield from _run()


@pytest.fixture(params=["embedded", "real"])
def port(request: pytest.FixtureRequest, embedded: EmbeddedZooKeeper) -> int:
    """The port of one of the two servers."""
    if request.param == "embedded":
        return embedded.port
    real: ZooKeeper = request.getfixturevalue("real")
    return real.servers[0].port


@pytest.fixture
def writer(port: int) -> Iterator[KazooClient]:
    """Somebody else, below a node of its own."""
    client = KazooClient(f"127.0.0.1:{port}", timeout=30)
    client.start(PATIENCE)
    client.ensure_path("/watched")
    client.chroot = "/watched"
    yield client
    client.chroot = ""
    client.delete("/watched", recursive=True)
    client.stop()
    client.close()


@pytest.fixture
def raw(port: int) -> Iterator[RawClient]:
    with RawClient(port) as client:
        client.greet(30)
        yield client


def test_persistent_watches_are_set_again(writer: KazooClient, raw: RawClient) -> None:
    for path in ("/here", "/below"):
        writer.create(path)
    watches: list[list[str]] = [[], [], [], ["/watched/here"], ["/watched/below"]]
    code, _ = raw.ask(SET_WATCHES_2, bytes(8) + b"".join(map(pack_texts, watches)))
    assert code == 0
    for data in (b"1", b"2"):
        writer.set("/here", data)
        writer.create("/here/child")
        writer.delete("/here/child")
        writer.create("/below/child", data)
        writer.set("/below/child", data)
        writer.delete("/below/child")
        assert [event(raw) for _ in range(6)] == [
            (3, "/watched/here"),
            (4, "/watched/here"),
            (4, "/watched/here"),
            (1, "/watched/below/child"),
            (3, "/watched/below/child"),
            (2, "/watched/below/child"),
        ]


def read(kind: int, path: str, *, watch: bool = False) -> bytes:
    return pack_step(kind, -1) + pack_text(path) + pack_boolean(watch)


def test_one_request_reads_many_nodes(writer: KazooClient, raw: RawClient) -> None:
    writer.create("/one", b"data")
    steps = [
        read(GET_DATA, "/watched/one"),
        read(GET_DATA, "/none"),
        read(GET_CHILDREN, "/watched"),
    ]
    code, reply = raw.ask(MULTI_READ, b"".join([*steps, END]))
    assert code == 0
    assert reply.step() == (GET_DATA, False)
    assert reply.buffer() == b"data"
    stat = [reply.long() for _ in range(4)]
    assert stat[0] == writer.get("/one")[1].czxid
    rest = [reply.integer() for _ in range(3)], reply.long()
    assert rest == ([0, 0, 0], 0)
    assert ([reply.integer() for _ in range(2)], reply.long()) == ([4, 0], stat[0])
    assert (reply.step(), reply.integer()) == ((-1, False), -101)
    assert (reply.step(), reply.texts()) == ((GET_CHILDREN, False), ["one"])
    assert (reply.step(), reply.at_end) == ((-1, True), True)


@pytest.mark.parametrize("kind", [EXISTS, 99])
def test_one_request_does_nothing_but_read(raw: RawClient, kind: int) -> None:
    code, _ = raw.ask(MULTI_READ, read(kind, "/") + END)
    assert code == -5


def test_many_reads_set_no_watch(writer: KazooClient, raw: RawClient) -> None:
    raw.ask(MULTI_READ, read(GET_DATA, "/watched", watch=True) + END)
    writer.set("/", b"changed")
    assert raw.ask(WHO_AM_I)[0] == 0


def users(reply: Record) -> set[tuple[str, str]]:
    return {(reply.text(), reply.text()) for _ in range(reply.integer())}


def test_a_client_may_ask_who_it_is(raw: RawClient) -> None:
    address = ("ip", "127.0.0.1")
    assert users(raw.ask(WHO_AM_I)[1]) == {address}
    user = pack_integer(0) + pack_text("digest") + pack_buffer(b"shop:secret")
    assert raw.ask(AUTH, user, xid=-4)[0] == 0
    assert users(raw.ask(WHO_AM_I)[1]) == {address, ("digest", "shop")}
