"""A server that has started again, or lost data, grants no lock that a holder may believe in."""

from __future__ import annotations

import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest
from redis import Redis as RedisPy
from redis.exceptions import RedisError
from typing_extensions import Self

from distlock import LockLost, LockUnavailable, zk_lock
from distlock.session.registry import close_sessions
from distlock.testing.guard import GuardedProcess
from distlock.testing.ports import free_ports
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, await_connection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_django import Settings

    from tests.kit.tools import MakeOwner, Owner

#: Seconds.
SESSION_TIMEOUT = 3


class Server:
    """A Redis of one test, which it kills and starts again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self.hosts = f"redis://127.0.0.1:{self.port}/0"
        self.process: GuardedProcess | None = None

    def start(self, *options: str) -> Self:
        program = shutil.which("redis-server")
        assert program
        common = f"--bind 127.0.0.1 --port {self.port} --save".split()
        self.process = GuardedProcess(
            [program, *common, "", *options],
            output=self.folder / "log",
            cwd=self.folder,
            folder=self.folder,
        )
        eventually(self.answers, PATIENCE, "a server that answers")
        return self

    def answers(self) -> bool:
        with RedisPy.from_url(self.hosts) as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False

    def kill(self) -> None:
        assert self.process
        self.process.send(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def flush(self) -> None:
        with RedisPy.from_url(self.hosts) as client:
            client.flushall()


KEPT = ("--appendonly", "yes", "--appendfsync", "always")
FORGOTTEN = ("--appendonly", "no")


@pytest.fixture
def server(tmp_path: Path, settings: Settings) -> Iterator[Server]:
    """A server without data, for the aliases "default" and "other"."""
    server = Server(tmp_path)
    options = {
        "HOSTS": server.hosts,
        "SESSION_TIMEOUT": SESSION_TIMEOUT,
        "CONNECT_TIMEOUT": PATIENCE,
        "TIMEOUT": 0.5,
    }
    settings.DISTLOCK = {"default": options, "other": options}
    yield server
    close_sessions()
    server.kill()


@pytest.fixture
def holder(make_owner: MakeOwner) -> Owner:
    return make_owner()


def test_a_new_server_with_an_append_only_file_grants_at_once(server: Server) -> None:
    server.start(*KEPT)
    with zk_lock("key"):
        pass


def test_a_new_server_that_may_have_forgotten_grants_after_the_session_timeout(
    server: Server,
) -> None:
    server.start(*FORGOTTEN)
    with pytest.raises(LockUnavailable, match=r"has just started.* for \d\.\d s more"):
        zk_lock("key").acquire()
    eventually(grants, 3 * SESSION_TIMEOUT, "a grant")


def grants() -> bool:
    try:
        with zk_lock("key", using="other"):
            return True
    except LockUnavailable:
        return False


def test_a_hold_survives_a_restart_that_loses_nothing(server: Server, holder: Owner) -> None:
    server.start(*KEPT)
    lock = zk_lock("key")
    hold = holder.now(lock.__enter__)

    session = await_connection()
    before = session.id
    server.kill()
    server.start(*KEPT)
    eventually(lambda: session.connected, PATIENCE)
    assert session.id == before
    assert not hold.lost
    with pytest.raises(LockUnavailable, match="has just started"):  # nobody comes in its place
        zk_lock("another", using="other").acquire()
    holder.now(lock.release)
    eventually(grants, 3 * SESSION_TIMEOUT, "a grant")


@pytest.mark.parametrize("forget", ["restart", "flush"])
def test_nobody_gets_a_forgotten_lock_while_its_holder_believes_in_it(
    server: Server, holder: Owner, forget: str
) -> None:
    server.start(*KEPT)
    lock = zk_lock("key")
    hold = holder.now(lock.__enter__)

    await_connection("other")
    if forget == "flush":
        server.flush()
    else:
        server.kill()
        shutil.rmtree(server.folder / "appendonlydir")
        server.start(*FORGOTTEN)
    forgotten_at = time.monotonic()
    believed_until = granted_at = 0.0
    while not granted_at:
        if not hold.lost:
            believed_until = time.monotonic()
        if grants():
            granted_at = time.monotonic()
    assert believed_until < granted_at
    assert granted_at - forgotten_at > SESSION_TIMEOUT * 2 / 3
    with pytest.raises(LockLost):
        holder.now(lock.release)
