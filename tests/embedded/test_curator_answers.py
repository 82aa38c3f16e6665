"""What Java's Curator asks of a server: the embedded one answers as ZooKeeper does.

Source: Curator's ``TestLockACLs`` and ``TestFramework.testBackgroundConfigPathWithNamespace``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from benchmarks import curator
from distlock.embedded.server import EmbeddedZooKeeper
from distlock.jute import (
    pack_texts,
)
from distlock_chaos.fixtures import _run
from distlock_chaos.server import ZooKeeper
from tests.embedded.raw import RawClient, event
from tests.kit.tools import PATIENCE

SOURCE = Path(__file__).with_name("Answers.java")


@pytest.fixture(scope="module")
def real() -> Iterator[ZooKeeper]:
    yield from _run()


def test_an_access_list_of_addresses_and_the_configuration(
    real: ZooKeeper, embedded: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    try:
        command = curator.command(SOURCE, tmp_path, newer=False)
    except curator.CuratorMissing as error:
        pytest.skip(str(error))
    path = f"/answers-{uuid4()}"
    said = [
        subprocess.run(
            [*command, hosts, path],
            check=True,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        ).stdout
        for hosts in (real.hosts, embedded.hosts)
    ]
    assert said[0] == said[1]
    assert "'ip,'127.0.0.1" in said[1]
    assert "config 0" in said[1]


# --- watches that kazoo does not know ------------------------------------------------------------


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
