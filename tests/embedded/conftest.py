"""Fixtures of the embedded server's tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pytest_django import Settings

from distlock.embedded.server import WORDS, EmbeddedZooKeeper
from distlock.session.registry import close_sessions
from tests.kit.embedded import end_in, folder_in
from tests.kit.tools import PATIENCE, REAP_SECONDS


@pytest.fixture
def embedded() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(session_timeouts=(0.5, 40.0)) as server:
        yield server


@pytest.fixture
def client(embedded: EmbeddedZooKeeper) -> Iterator[KazooClient]:
    """A client of the embedded server, kazoo's own."""
    client = KazooClient(embedded.hosts, timeout=30)
    client.start(PATIENCE)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the embedded server that all processes share; it ends with the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    folder = folder_in(tmp_path)
    yield folder
    close_sessions()
    end_in(folder)


@pytest.fixture
def embedded_hosts(folder: Path, settings: Settings) -> None:
    """Use that server."""
    del folder
    settings.DISTLOCK = {"default": {"HOSTS": "embedded", "SESSION_TIMEOUT": 4}}


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """The server on which the borrowed tests of recipes run."""
    with EmbeddedZooKeeper() as server:
        server.tree.reap_after = REAP_SECONDS
        WORDS[b"wchp"] = _wchp  # by which these tests see who watches
        yield server
        del WORDS[b"wchp"]


def _wchp(server: EmbeddedZooKeeper) -> str:
    watches = dict(server.tree._watches)
    return "".join(
        f"{path}\n" + "".join(f"\t{one:#x}\n" for one in ids) for (path, _), ids in watches.items()
    )
