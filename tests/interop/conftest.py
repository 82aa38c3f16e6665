"""Fixtures of the interop tests: those of the mutex tests, and Java's Curator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import curator
from tests.interop.tools import KEY, SOURCE, JavaPeer, NewContender, contenders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlock.testing.server import ZooKeeper
    from tests.kit.tools import MakeOwner, Tree


@pytest.fixture(scope="session", params=[False, True], ids=["Debian's", "5.7"])
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
def java(
    java_command: list[str], zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaPeer]:
    """A Java service on the shared server, with one session. A test that kills one has its own."""
    peer = JavaPeer(java_command, zookeeper.hosts, folder=tmp_path_factory.mktemp("peer"))
    yield peer
    peer.end()


@pytest.fixture
def contender(java: JavaPeer, tree: Tree, make_owner: MakeOwner) -> NewContender:
    """Returns a new contender for `KEY` each time."""
    return contenders(java, tree.path(KEY), make_owner)


@pytest.fixture
def witness_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "inside"
    folder.mkdir()
    return folder
