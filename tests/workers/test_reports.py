"""Where a process sends its sessions' passwords, and what others may see of the session reaper."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distlock.session import reaper
from distlock.session.registry import close_sessions
from distlock_chaos.server import ZooKeeper
from tests.fork.tools import heard
from tests.kit.helpers import eventually, spawn_python
from tests.kit.losses import tell as order
from tests.kit.tools import PATIENCE, Tree, await_connection, within
from tests.workers.master import SESSION_SECONDS, master
from tests.workers.reaping import reaper_of

#: Far from the session timeout, and from what it takes: some hundredths of a second.
SOON = SESSION_SECONDS / 2

#: A master whose child closes all descriptors, as the process of Celery's embedded beat does, and
#: whose numbers belong to other sockets then. With an argument it starts a reaper of its own.
CLOSES_ALL = """
import os, socket, sys
from tests.fork.tools import hear, tell
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=20, CONNECT_TIMEOUT=20)
from distlock import zk_lock
from distlock.session.reaper import start_session_reaper

assert start_session_reaper()
if pid := os.fork():
    os.waitpid(pid, 0)
    sys.exit()
os.closerange(3, 1000)
pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(100)]
if sys.argv[3:]:
    assert start_session_reaper()
with zk_lock("key"):
    arrived = 0
    for end in (end for pair in pairs for end in pair):
        end.setblocking(False)
        try:
            arrived += len(end.recv(4096))
        except BlockingIOError:
            pass
    tell([os.getpid(), arrived])
    hear()
"""


def test_a_password_never_goes_into_a_socket_that_has_the_number_of_the_reapers(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with spawn_python(CLOSES_ALL, zookeeper.hosts, tree.namespace) as process:
        _, arrived = heard(process)
        assert arrived == 0
        order(process, "end")
        process.communicate(timeout=2 * PATIENCE)


def test_a_process_that_has_closed_the_socket_may_start_a_reaper_of_its_own(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with spawn_python(CLOSES_ALL, zookeeper.hosts, tree.namespace, "again") as process:
        pid, arrived = heard(process)
        assert arrived == 0
        assert len(tree.line("key")) == 1
        with within(SOON):
            os.kill(pid, signal.SIGKILL)
            tree.await_line("key", 0)
        process.communicate(timeout=2 * PATIENCE)


def test_the_reaper_shows_nothing_of_its_master(
    tree: Tree, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arguments can be read by all users of the machine, its environment by this one's."""
    monkeypatch.setenv("DATABASE_URL", "postgres://user:s3cr3t@host/db")
    with master(zookeeper.hosts, tree.namespace) as one:
        one.child("a")
        password = one.tell("a", "tell the password")
        process = Path(f"/proc/{reaper_of(one.pid)}")
        assert b"s3cr3t" in Path(f"/proc/{one.pid}/environ").read_bytes()
        shown = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        assert b"session_reaper" in shown
        for secret in ("s3cr3t", tree.namespace, zookeeper.hosts, password):
            assert secret.encode() not in shown
        one.end()


def test_the_reaper_has_no_file_of_its_master(tree: Tree, zookeeper: ZooKeeper) -> None:
    """A descriptor that it kept would keep a port, a lock or a pipe of the master busy."""
    with master(zookeeper.hosts, tree.namespace) as one:
        one.child("a")
        reaper_pid = reaper_of(one.pid)
        eventually(lambda: "anon_inode" in open_files(reaper_pid), PATIENCE, "the child's pidfd")
        kinds = open_files(reaper_pid)
        one.end()
    assert kinds == ["/dev/null", "anon_inode", "pipe", "socket"]  # the pidfd, and standard error


def open_files(pid: int) -> list[str]:
    """The kinds of a process's open files."""
    files = Path(f"/proc/{pid}/fd").iterdir()
    return sorted(str(file.readlink()).partition(":")[0] for file in files)


# --- what is reported ----------------------------------------------------------------------------


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where a reaper would receive the reports of this process."""
    receiving, sending = reaper._pair()
    with receiving, sending:
        number = sending.fileno()
        line = number, reaper._identity(number)
        monkeypatch.setattr(reaper, "_reports", line)
        monkeypatch.setattr("distlock.session.session.observers", [reaper._report])
        yield receiving


def received(reports: socket.socket) -> Any:
    reports.settimeout(PATIENCE)
    return json.loads(reports.recv(65_536))


@pytest.mark.usefixtures("tree")
def test_a_session_is_reported_when_it_begins_and_when_it_was_closed(
    reports: socket.socket,
) -> None:
    session = await_connection()
    began = received(reports)
    session_id, password = session._client.credentials
    assert (began["alias"], began["session"]) == ("default", session_id)
    assert began["password"] == password.hex()
    close_sessions()
    assert received(reports) == {"alias": "default", "session": session_id}


@pytest.mark.usefixtures("tree")
def test_a_session_that_could_not_be_closed_is_not_reported_as_closed(
    reports: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its locks would wait for the session timeout if the reaper forgot it."""
    session = await_connection()
    received(reports)
    monkeypatch.setattr(session._client, "say_goodbye", lambda _: False)
    session.close()
    reports.setblocking(False)
    with pytest.raises(BlockingIOError):
        reports.recv(1)
    monkeypatch.undo()
    session.close()
