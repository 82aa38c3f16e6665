"""Fixtures of the tests with Java's Curator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from benchmarks import curator
from distlock_chaos.server import ZooKeeper
from tests.interop.tools import KEY, SOURCE, JavaPeer, NewContender, contenders
from tests.kit.engines import first_then_deep
from tests.kit.tools import MakeOwner, Tree


@pytest.fixture(scope="session", params=first_then_deep([False, True]), ids=["Debian's", "5.7"])
def newer(request: pytest.FixtureRequest) -> bool:
    """Whether Java has Curator 5.7, and not Debian's, which is 5.4.0 in Debian 12."""
    return bool(request.param)


@pytest.fixture(scope="session")
def java_command(newer: bool, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How to run `Peer.java`, compiled."""
    try:
        return curator.command(SOURCE, tmp_path_factory.mktemp("java"), newer=newer)
    except curator.CuratorMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def java_of(
    java_command: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], JavaPeer]]:
    """Returns the one Java service of a server, with one session."""
    with ExitStack() as peers:

        @cache
        def start(hosts: str) -> JavaPeer:
            peer = JavaPeer(java_command, hosts, folder=tmp_path_factory.mktemp("peer"))
            peers.callback(peer.end)
            return peer

        yield start


@pytest.fixture(scope="module")
def java(java_of: Callable[[str], JavaPeer], zookeeper: ZooKeeper) -> JavaPeer:
    """The Java service on the shared server. A test that kills one has its own."""
    return java_of(zookeeper.hosts)


@pytest.fixture
def contender(java: JavaPeer, tree: Tree, make_owner: MakeOwner) -> NewContender:
    """Returns a new contender for `KEY` each time."""
    return contenders(java, tree.path(KEY), make_owner)


@pytest.fixture
def witness_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "inside"
    folder.mkdir()
    return folder
