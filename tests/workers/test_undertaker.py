"""A process that dies frees its locks before the session timeout, and one that lives keeps them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from distlock import undertaker
from distlock.undertaker import Undertaker, _Process, start_undertaker
from tests.helpers import alive, eventually
from tests.mutex.tools import PATIENCE, Tree, within
from tests.workers.master import SESSION_SECONDS, master

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from distlock.testing.proxy import TcpProxy
    from distlock.testing.server import ZooKeeper

#: Far from the session timeout, and from what it takes: some hundredths of a second.
SOON = SESSION_SECONDS / 2


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_a_killed_child_frees_its_lock_soon_and_no_other_process_does(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with master(zookeeper.hosts, tree.namespace) as one:
        one.holds("master's")
        dying, _ = one.child("a"), one.child("b")
        password = one.tell("a", "tell the password")
        with within(SOON):
            kill(dying)
            tree.await_line("a", 0)
        assert one.tell("b", "verify") == "done"
        assert len(tree.line("master's")) == 1
        said = one.end()
    assert f"Process {dying} died" in said
    assert said.count("died") == 1  # the others have closed their sessions
    assert len(password) == 32
    assert password not in said
    assert repr(bytes.fromhex(password)) not in said


def test_without_an_undertaker_the_lock_of_a_killed_child_is_kept(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    """What the tests here would measure otherwise."""
    with master(zookeeper.hosts, tree.namespace, undertaker=False) as one:
        dying = one.child("a")
        kill(dying)
        eventually(lambda: not alive(dying))
        one.child("b")  # takes longer than a burial
        (node,) = tree.line("a")
        one.end()
        tree.client.delete(f"{tree.path('a')}/{node}")  # rather than wait for 20 s


def test_a_stopped_child_lives_and_so_does_one_that_has_closed_its_files(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with master(zookeeper.hosts, tree.namespace) as one:
        stopped, dying = one.child("stopped"), one.child("dying")
        one.child("without files")
        os.kill(stopped, signal.SIGSTOP)
        kill(dying)
        tree.await_line("dying", 0)
        assert len(tree.line("stopped")) == 1
        assert len(tree.line("without files")) == 1
        os.kill(stopped, signal.SIGCONT)
        assert one.tell("stopped", "verify") == "done"
        said = one.end()
    assert said.count("died") == 1


def test_a_killed_master_frees_its_own_locks_and_those_of_its_dead_children(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with master(zookeeper.hosts, tree.namespace) as one:
        one.holds("master's")
        orphan = one.child("child's")
        with within(SOON):
            kill(one.pid)
            tree.await_line("master's", 0)
        assert len(tree.line("child's")) == 1
        with within(SOON):
            kill(orphan)
            tree.await_line("child's", 0)
        said = one.process.communicate(timeout=PATIENCE)[1]  # the undertaker has ended, too
    assert said.count("died") == 2


def test_a_session_that_follows_an_expired_one_is_ended_too(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with master(zookeeper.hosts, tree.namespace) as one:
        dying = one.child("a")
        assert one.tell("a", "lose the session") is True
        assert len(tree.line("a again")) == 1
        with within(SOON):
            kill(dying)
            tree.await_line("a again", 0)
        one.end()


def test_a_child_that_dies_in_an_outage_is_buried_when_it_is_over(
    tree: Tree, broken_link: TcpProxy
) -> None:
    with master(broken_link.address, tree.namespace) as one:
        dying = one.child("a")
        broken_link.cut()
        kill(dying)
        eventually(lambda: not alive(dying))
        assert len(tree.line("a")) == 1
        with within(SOON):
            broken_link.pass_through()
            tree.await_line("a", 0)
        one.end()


def test_only_the_end_of_its_fellows_ends_the_undertaker(tree: Tree, zookeeper: ZooKeeper) -> None:
    """Neither what a service manager sends, nor what is sent to the group of the master."""
    with master(zookeeper.hosts, tree.namespace) as one:
        dying = one.child("a")
        listed = ["ps", "-ww", "-eo", "pid=,sid=,args="]
        lines = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
        fellows = [line.split() for line in lines.splitlines() if tree.namespace in line]
        (pid,) = (int(pid) for pid, sid, *_ in fellows if int(sid) != os.getsid(dying))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(pid, number)
        with within(SOON):
            kill(dying)
            tree.await_line("a", 0)
        one.end()
        eventually(lambda: not alive(pid))


# --- what it hears -------------------------------------------------------------------------------


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the undertaker ends."""
    ended: list[tuple[Any, ...]] = []
    monkeypatch.setattr(undertaker, "_end", lambda *what: ended.append(what))
    return ended


@pytest.fixture
def line() -> Iterator[tuple[Undertaker, socket.socket]]:
    """An undertaker, and where to report."""
    heard, told = undertaker._line()
    with heard, told:
        yield Undertaker(heard), told


def fork(act: Any) -> int:
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    return pid


def report(told: socket.socket, alias: str, number: int) -> None:
    told.send(json.dumps([alias, number, b"secret".hex()]).encode())


def test_only_the_latest_session_of_each_alias_is_ended(
    line: tuple[Undertaker, socket.socket], ended: list[tuple[Any, ...]]
) -> None:
    one, told = line

    def act() -> None:
        for alias, number in (("default", 1), ("other", 2), ("default", 3)):
            report(told, alias, number)
        signal.alarm(60)  # if the test fails
        signal.pause()

    pid = fork(act)
    for _ in range(3):
        one._hear()
    kill(pid)
    told.close()
    one.run()
    os.waitpid(pid, 0)
    assert sorted(ended) == [(pid, "default", 3, b"secret"), (pid, "other", 2, b"secret")]


def test_who_has_closed_its_end_of_the_line_lives(
    line: tuple[Undertaker, socket.socket], ended: list[tuple[Any, ...]]
) -> None:
    one, told = line

    def act() -> None:
        report(told, "default", 1)
        told.close()
        signal.alarm(60)  # if the test fails
        signal.pause()

    pid = fork(act)
    told.close()
    one._hear()
    one._hear()  # nobody can say anything any more
    assert list(one._known) == [pid]
    assert not ended
    kill(pid)
    one.run()
    os.waitpid(pid, 0)
    assert ended == [(pid, "default", 1, b"secret")]


def test_a_process_that_has_a_dead_ones_id_is_not_taken_for_it(
    line: tuple[Undertaker, socket.socket], ended: list[tuple[Any, ...]]
) -> None:
    """The worst case: its first report is read before the death of the other one is seen."""
    one, told = line
    dead = _Process(fork(lambda: None))
    os.waitpid(dead.pid, 0)
    dead.pid = os.getpid()
    dead.sessions["default"] = 1, b"secret"
    one._known[dead.pid] = dead
    one._selector.register(dead.pidfd or 0, 1, lambda: one._bury(dead))
    report(told, "default", 2)
    one._hear()
    eventually(lambda: ended)
    assert ended == [(os.getpid(), "default", 1, b"secret")]
    assert one._known[os.getpid()].sessions == {"default": (2, b"secret")}
    one._bury(dead)  # seen now, and done already
    assert os.getpid() in one._known
    assert len(ended) == 1


def test_who_reports_is_said_by_the_kernel(
    line: tuple[Undertaker, socket.socket], ended: list[tuple[Any, ...]]
) -> None:
    one, told = line
    pid = fork(lambda: report(told, "default", 1))
    report(told, "default", 2)
    os.waitpid(pid, 0)
    one._hear()
    one._hear()
    eventually(lambda: ended)
    assert ended == [(pid, "default", 1, b"secret")]
    assert one._known[os.getpid()].sessions == {"default": (2, b"secret")}


# --- starting ------------------------------------------------------------------------------------


def test_without_pidfds_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(pid: int) -> int:
        raise PermissionError(f"no pidfd of {pid} in this sandbox")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    assert start_undertaker() is False
    assert undertaker._reports is None


def test_wrong_settings_are_said_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    settings.DISTLOCK = {"default": {}, "wrong": {"HOST": "x"}}
    with pytest.raises(ImproperlyConfigured, match="HOSTS"):
        start_undertaker()
    assert undertaker._reports is None


def test_a_full_or_closed_line_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, line: tuple[Undertaker, socket.socket]
) -> None:
    _, told = line
    monkeypatch.setattr(undertaker, "_reports", told)

    def report_often() -> None:
        for number in range(10_000):
            undertaker._report("default", number, b"secret")

    thread = threading.Thread(target=report_often, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    told.close()
    undertaker._report("default", 1, b"secret")
