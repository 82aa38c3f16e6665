"""A process that dies frees its locks before the session timeout, and one that lives keeps them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from distlock.conf import Configuration, configuration
from distlock.session import reaper
from distlock.session.reaper import start_session_reaper
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import alive, eventually
from tests.kit.tools import PATIENCE, Tree, within
from tests.workers.master import SESSION_SECONDS, master
from tests.workers.reaping import reaper_of

pytestmark = pytest.mark.engines("zookeeper", "redis")

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
    assert len(password) >= 32
    assert password not in said
    assert repr(bytes.fromhex(password)) not in said


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
        said = one.process.communicate(timeout=PATIENCE)[1]  # the session reaper has ended, too
    assert said.count("died") == 2


def test_a_child_that_dies_in_an_outage_is_reaped_when_it_is_over(
    tree: Tree, broken_link: TcpProxy
) -> None:
    with master(configuration().hosts, tree.namespace) as one:
        dying = one.child("a")
        broken_link.cut()
        kill(dying)
        eventually(lambda: not alive(dying))
        assert len(tree.line("a")) == 1
        with within(SOON):
            broken_link.pass_through()
            tree.await_line("a", 0)
        one.end()


def test_only_the_end_of_its_fellows_ends_the_reaper(tree: Tree, zookeeper: ZooKeeper) -> None:
    """Neither what a service manager sends, nor what is sent to the group of the master."""
    with master(zookeeper.hosts, tree.namespace) as one:
        dying = one.child("a")
        pid = reaper_of(one.pid)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(pid, number)
        with within(SOON):
            kill(dying)
            tree.await_line("a", 0)
        one.end()
        eventually(lambda: not alive(pid))


# --- starting ------------------------------------------------------------------------------------


@pytest.fixture
def no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("started"))


@pytest.mark.usefixtures("no_start")
def test_wrong_settings_are_said_before_it_starts(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {}, "wrong": {"HOST": "x"}}
    with pytest.raises(ImproperlyConfigured, match="HOSTS"):
        start_session_reaper()
    assert reaper._reports is None


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_a_master_goes_on_where_the_reaper_cannot_start(
    python: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reaper, "interpreter", lambda: python)
    assert start_session_reaper() is False
    assert reaper._reports is None
    assert "could not be started" in caplog.text


def test_a_full_or_closed_line_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    receiving, sending = reaper._pair()
    line = sending.fileno(), reaper._identity(sending.fileno())
    monkeypatch.setattr(reaper, "_reports", line)
    conf = Configuration()

    def report_often() -> None:
        for number in range(10_000):
            reaper._report(conf, number, b"secret")

    with receiving, sending:
        thread = threading.Thread(target=report_often, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        receiving.close()
        reaper._report(conf, 1, b"secret")
    reaper._report(conf, 1, b"secret")


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
