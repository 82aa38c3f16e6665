"""The program of the session reaper: which processes it takes for dead, and what it does then."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock.engine import session_reaper
from distlock.engine.session_reaper import Process, Reaper
from distlock.session import reaper
from tests.kit.helpers import eventually

#: What it ends: a process, an alias and a session.
Ended = list[tuple[int, str, int]]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Ended:
    """What the reaper ends."""
    ended: Ended = []
    monkeypatch.setattr(
        session_reaper,
        "_end",
        lambda pid, report: ended.append((pid, report["alias"], report["session"])),
    )
    return ended


@pytest.fixture
def line() -> Iterator[tuple[Reaper, socket.socket]]:
    """A reaper, and where to report."""
    receiving, sending = reaper._pair()
    with receiving, sending:
        one = Reaper(receiving)
        yield one, sending
        for process in one._processes:
            process.close()


def fork(act: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    return pid


def sleep() -> None:
    """Wait to be killed."""
    signal.alarm(60)  # if the test fails
    signal.pause()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # dead, and not waited for yet


def begin(line: socket.socket, alias: str, session: int) -> None:
    line.send(json.dumps({"alias": alias, "session": session, "password": "00"}).encode())


def close(line: socket.socket, alias: str, session: int) -> None:
    line.send(json.dumps({"alias": alias, "session": session}).encode())


def sessions(one: Reaper) -> list[tuple[int, dict[str, int]]]:
    """Let the reaper act; return the processes that it watches, and their sessions."""
    one.step()
    return [
        (process.pid, {alias: report["session"] for alias, report in process.sessions.items()})
        for process in one._processes
    ]


def test_only_the_latest_session_of_each_alias_is_ended(
    line: tuple[Reaper, socket.socket], ended: Ended
) -> None:
    one, sending = line

    def act() -> None:
        for alias, number in (("default", 1), ("other", 2), ("default", 3)):
            begin(sending, alias, number)
        sleep()

    pid = fork(act)
    sending.close()
    eventually(lambda: sessions(one) == [(pid, {"default": 3, "other": 2})])
    kill(pid)
    one.run()
    os.waitpid(pid, 0)
    eventually(lambda: sorted(ended) == [(pid, "default", 3), (pid, "other", 2)])


@pytest.mark.parametrize("second", ["default", "other"])
def test_a_session_that_was_closed_is_not_ended_and_one_that_began_before_that_is(
    line: tuple[Reaper, socket.socket], ended: Ended, second: str
) -> None:
    """All reports are read after the death; the second may be of the same alias."""
    one, sending = line

    def act() -> None:
        begin(sending, "default", 1)
        begin(sending, second, 2)
        close(sending, "default", 1)

    pid = fork(act)
    sending.close()
    os.waitpid(pid, 0)
    one.run()
    eventually(lambda: ended == [(pid, second, 2)])


def test_a_process_that_has_closed_its_end_of_the_line_lives(
    line: tuple[Reaper, socket.socket], ended: Ended
) -> None:
    one, sending = line

    def act() -> None:
        begin(sending, "default", 1)
        sending.close()
        sleep()

    pid = fork(act)
    sending.close()
    eventually(lambda: sessions(one) and one._reports.fileno() < 0)  # nobody can report any more
    assert sessions(one) == [(pid, {"default": 1})]
    assert not ended
    kill(pid)
    one.run()
    os.waitpid(pid, 0)
    eventually(lambda: ended == [(pid, "default", 1)])


def test_a_process_that_has_a_dead_ones_id_is_not_taken_for_it(
    line: tuple[Reaper, socket.socket], ended: Ended
) -> None:
    """The worst case: its first report is read before the death of the other one is seen."""
    one, sending = line
    pid = fork(sleep)
    dead = Process(pid)
    kill(pid)
    os.waitpid(pid, 0)
    dead.pid = os.getpid()
    dead.sessions["default"] = {"alias": "default", "session": 1}
    one._processes.append(dead)
    begin(sending, "default", 2)
    assert sessions(one) == [(os.getpid(), {"default": 2})]
    eventually(lambda: ended)
    assert ended == [(os.getpid(), "default", 1)]


def test_the_kernel_names_the_sender_of_a_report(
    line: tuple[Reaper, socket.socket], ended: Ended
) -> None:
    one, sending = line
    pid = fork(lambda: begin(sending, "default", 1))
    begin(sending, "default", 2)
    os.waitpid(pid, 0)
    assert sessions(one) == [(os.getpid(), {"default": 2})]
    eventually(lambda: ended)
    assert ended == [(pid, "default", 1)]


def test_a_process_of_another_namespace_is_not_taken_for_a_dead_one(
    line: tuple[Reaper, socket.socket], ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel names it 0, and its death cannot be seen."""
    one, sending = line
    monkeypatch.setattr(session_reaper, "_sender", lambda _: 0)
    begin(sending, "default", 1)
    assert sessions(one) == []
    assert not ended


def test_it_logs_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session_reaper, "end_session", lambda *_: True)
    session_reaper._end(7, REPORT)
    (line,) = capsys.readouterr().err.splitlines()
    assert "WARNING/session reaper] Process 7 died" in line
    assert r"(alias 'de\nfault')" in line


REPORT: dict[str, Any] = {"alias": "de\nfault", "session": 1}
