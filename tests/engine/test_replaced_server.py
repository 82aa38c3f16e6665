"""A server that has seen less than a session: it was replaced by an empty one, or by a backup.

It refuses who has seen more, in silence, as a server does that is just starting.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from distlock import LockLost, LockUnavailable, zk_lock
from distlock.session.registry import close_sessions, session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_django import Settings

pytestmark = pytest.mark.deep

SESSION_TIMEOUT = 10.0
#: How long a new session may take once the old one must be over, in seconds.
SOON = 5.0


@pytest.fixture
def server(settings: Settings) -> Iterator[ZooKeeper]:
    """A server of which the test has seen 200 transactions."""
    with ZooKeeper() as zookeeper:
        settings.DISTLOCK = {
            "default": {
                "HOSTS": zookeeper.hosts,
                "SESSION_TIMEOUT": SESSION_TIMEOUT,
                "CONNECT_TIMEOUT": 0.5,
                "TIMEOUT": 0.5,
            }
        }
        yield zookeeper
        close_sessions()


def lock_often() -> None:
    for number in range(100):
        with zk_lock(f"key-{number % 3}", timeout=5):
            pass


def can_lock(key: str) -> bool:
    try:
        with zk_lock(key):
            return True
    except LockUnavailable:
        return False


def data_of(server: ZooKeeper) -> Path:
    return server.servers[0].folder / "data" / "version-2"


def test_a_session_begins_anew_when_the_server_was_replaced_by_an_empty_one(
    server: ZooKeeper,
) -> None:
    lock_often()
    session, old = session_for(), session_for().id
    (node,) = server.servers
    stopped_at = time.monotonic()
    node.stop()
    shutil.rmtree(data_of(server))
    node.start()
    eventually(lambda: can_lock("key"), 60)
    assert time.monotonic() - stopped_at < SESSION_TIMEOUT + SOON
    assert session_for() is session
    assert session.id != old


def test_a_session_ends_when_the_server_was_replaced_by_an_older_one(
    server: ZooKeeper, tmp_path: Path
) -> None:
    """The backup has a node of the session which nobody would ever delete."""
    (node,) = server.servers
    lock = zk_lock("key")
    assert lock.acquire(timeout=5)
    session, old = session_for(), session_for().id
    node.stop()
    shutil.copytree(data_of(server), tmp_path / "backup")
    node.start()
    eventually(lambda: session.connected)
    assert session.id == old
    with suppress(LockLost):  # a slow start of the server takes as long as the deadline
        lock.release()
    lock_often()
    stopped_at = time.monotonic()
    node.stop()
    shutil.rmtree(data_of(server))
    shutil.copytree(tmp_path / "backup", data_of(server))
    node.start()
    with raw_client(server.hosts) as client:
        assert client.get_children("/distlock/key")
    eventually(lambda: can_lock("key"), 60)
    assert time.monotonic() - stopped_at < SESSION_TIMEOUT + SOON
    assert session.id != old


@pytest.mark.parametrize("seconds_down", [0.5, SESSION_TIMEOUT + 1])
def test_a_session_goes_on_when_the_server_comes_back_with_all_its_data(
    server: ZooKeeper, settings: Settings, seconds_down: float
) -> None:
    (node,) = server.servers
    with TcpProxy("127.0.0.1", node.port) as link:
        patient = {"HOSTS": link.address, "CONNECT_TIMEOUT": PATIENCE}
        settings.DISTLOCK = {"default": settings.DISTLOCK["default"] | patient}
        lock_often()
        session, old = session_for(), session_for().id
        link.cut()
        node.stop()
        down_until = time.monotonic() + seconds_down
        eventually(lambda: time.monotonic() > down_until)
        node.start()
        # It listens before it has read its data, and whoever it keeps waiting for SESSION_TIMEOUT
        # by then begins a new session.
        with raw_client(server.hosts):
            link.restore()
        eventually(lambda: can_lock("key"), 60)
        assert session_for() is session
        assert session.id == old
        close_sessions()
