"""Watches that kazoo does not know, and Java's Curator sets: the embedded server has them, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from distlock.embedded.server import EmbeddedZooKeeper
from distlock.jute import (
    pack_texts,
)
from distlock_chaos.fixtures import _run
from distlock_chaos.server import ZooKeeper
from tests.embedded.raw import RawClient, event
from tests.kit.tools import PATIENCE


@pytest.fixture(scope="module")
def real() -> Iterator[ZooKeeper]:
    yield from _run()


SET_WATCHES_2 = 105


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
