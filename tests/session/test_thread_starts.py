"""A thread that could not be started once is started at the next need, whatever came in between."""

from __future__ import annotations

import itertools
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from celery import Celery
from celery.beat import Scheduler

from distlock import LockUnavailable, zk_lock
from distlock.celery.beat import LeaderMixin
from distlock.engine import timer
from distlock.engine.deadline import Heartbeat, SessionDeadline
from distlock.engine.hosts import client_of
from distlock.session import registry
from distlock.session import session as session_module
from distlock.session.registry import close_sessions, session_for
from distlock.session.session import Session
from tests.kit.helpers import eventually


class Interrupt(BaseException):
    """Lands in the test's thread at a chosen line."""


class Beats:
    """A heartbeat that somebody needs."""

    def __init__(self) -> None:
        self.beats = 0
        self.threads: set[int] = set()
        self._heartbeat = Heartbeat(
            SessionDeadline(),
            name="beats",
            send=self._send,
            drop=lambda: None,
            session_timeout=lambda: 0.06,
        )

    def use(self) -> None:
        self._heartbeat.attend(self)

    def works(self) -> bool:
        eventually(lambda: self.beats > 5)
        assert len(self.threads) == 1
        self._heartbeat.stop()
        return True

    def deadline_renewed(self) -> None:
        pass

    def report(self) -> None:
        self.threads.add(threading.get_ident())

    def _send(self, answered: Callable[[bool], None]) -> None:
        self.beats += 1
        answered(True)

    steps = Heartbeat._start


class Rings:
    """A step that is due."""

    def __init__(self) -> None:
        timer._forget_the_parent()
        self.rung = 0

    def use(self) -> None:
        timer.call_later(0, self._ring)

    def works(self) -> bool:
        return bool(eventually(lambda: self.rung))

    def _ring(self) -> None:
        self.rung += 1

    steps = timer._running


@pytest.fixture(params=[Beats, Rings])
def user(request: pytest.FixtureRequest) -> Any:
    """Somebody who needs a thread."""
    return request.param


@pytest.mark.usefixtures("own_timer")
def test_a_thread_that_could_not_be_started_is_started_at_the_next_need(
    user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = user()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot_start)
        with pytest.raises(LockUnavailable, match="can't start new thread"):
            one.use()
    one.use()
    assert one.works()


def cannot_start(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.usefixtures("own_timer")
def test_an_exception_at_any_line_of_the_start_is_made_good_at_the_next_need(user: Any) -> None:
    for line in itertools.count():
        one = user()
        if not interrupted(user.steps.__code__, line, one.use):
            break
        one.use()
        assert one.works(), line
    assert one.works()
    assert line >= 3


def interrupted(code: Any, line: int, call: Callable[[], object]) -> bool:
    """Call, and raise before the given line of a function; return whether it came so far."""
    passed = itertools.count()

    def trace(_: FrameType, event: str, __: Any) -> Any:
        if event == "line" and next(passed) == line:
            raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: trace if frame.f_code is code else None)
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_beat_whose_thread_could_not_be_started_stands_at_its_next_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Host(LeaderMixin, Scheduler):  # type: ignore[misc]  # Celery has no types
        pass

    host = Host(Celery("shop", broker="memory://", set_as_current=False))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot_start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            host.tick()
        host.close()
    assert host._stand().ident is not None
    host.close()


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_session_whose_thread_was_not_started_leaves_no_socket(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the start of the thread fails, or is interrupted when the thread runs."""
    made: list[socket.socket] = []
    pair, start = socket.socketpair, threading.Thread.start

    def note(*arguments: Any) -> tuple[socket.socket, socket.socket]:
        made.extend(sockets := pair(*arguments))
        return sockets

    def interrupted(thread: threading.Thread) -> None:
        if when == "after":
            start(thread)
        raise Interrupt

    close_sessions()
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", note)
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(Interrupt):
            session_for()
    assert len(made) == 2
    eventually(lambda: all(one.fileno() == -1 for one in made), 10, "closed sockets")
    with zk_lock("key", timeout=20):
        pass


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize("code", [registry.session_for, Session.__init__])
def test_an_exception_at_any_line_of_a_first_lock_leaves_no_session_that_nobody_ends(
    code: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def note(*arguments: Any) -> Any:
        made.append(client_of(*arguments))
        return made[-1]

    monkeypatch.setattr(session_module, "client_of", note)
    # An exception before the line at which a `with` block ends, which only a tracer can raise,
    # leaves its lock locked; no other thread could begin a session in this process any more.
    monkeypatch.setattr(registry, "_lock", threading.RLock())
    for line in itertools.count():
        close_sessions()
        if not interrupted(code.__code__, line, session_for):
            break
        kept = [one._client for one in registry.sessions()]
        threads = [client._connection._connection_routine for client in made if client not in kept]
        assert not any(thread is not None and thread.is_alive() for thread in threads), line
    assert line >= 10


@pytest.mark.usefixtures("distlock_settings", "own_timer")
@pytest.mark.parametrize("thread", ["connection", "heartbeat", "timer"])
def test_a_lock_for_which_no_thread_can_start_is_refused_with_the_reason(
    thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python 3.12 does it in ``atexit``, before it says that it is finalizing."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    close_sessions()
    lock = zk_lock("key", max_hold=60)
    if thread != "connection":
        assert not lock.locked()
    if thread == "timer":
        with zk_lock("key"):
            pass
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(LockUnavailable, match="can't create new thread") as refused:
            lock.acquire()
        assert isinstance(refused.value.__cause__, RuntimeError)
    assert eventually(lambda: not lock.locked())
    with lock:
        pass
