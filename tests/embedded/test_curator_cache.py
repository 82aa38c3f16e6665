"""Java's `CuratorCache`, which keeps a recursive watch, on the embedded server."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from benchmarks import curator
from distlock.embedded.server import EmbeddedZooKeeper
from distlock_chaos.guard import GuardedProcess
from distlock_chaos.proxy import TcpProxy
from tests.kit.tools import PATIENCE

SOURCE = Path(__file__).with_name("Cache.java")


@pytest.mark.parametrize("newer", [False, True], ids=["Debian's", "5.7"])
def test_it_follows_the_tree_over_two_connections(
    embedded: EmbeddedZooKeeper, client: KazooClient, tmp_path: Path, newer: bool
) -> None:
    try:
        command = curator.command(SOURCE, tmp_path, newer=newer)
    except curator.CuratorMissing as error:
        pytest.skip(str(error))
    client.create("/cached")
    with TcpProxy("127.0.0.1", embedded.port) as proxy, ExitStack() as stack:
        cache = GuardedProcess(
            [*command, proxy.address, "/cached"],
            output=tmp_path / "log",
            cwd=tmp_path,
            piped=True,
        )
        stack.callback(cache.wait, PATIENCE)
        stack.enter_context(cache.stdout)
        stack.enter_context(cache.stdin)  # it ends with its input

        def heard() -> str:
            line: str = cache.stdout.readline()
            return line.strip()

        assert [heard(), heard()] == ["NODE_CREATED /cached", "ready"]
        for name in "ab":
            child = f"/cached/{name}"
            client.create(child)
            assert heard() == f"NODE_CREATED {child}"
            client.set(child, b"changed")
            assert heard() == f"NODE_CHANGED {child}"
            proxy.cut()
            client.set(child, b"meanwhile")
            proxy.pass_through()
            assert heard() == f"NODE_CHANGED {child}"
