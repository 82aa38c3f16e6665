"""The heartbeat's thread, with a clock and a link that do as they are told.

One heartbeat is in flight, and a silent connection is dropped. The same with a real server is in
tests/deadline.
"""

from __future__ import annotations

import gc
import queue
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from distlock.engine.deadline import Heartbeat, SessionDeadline
from tests.engine.conftest import T
from tests.kit.helpers import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.engine.conftest import Clock

SOON = 15.0


class Place:
    """Somebody who needs the deadline."""

    def __init__(self) -> None:
        self.looked = threading.Semaphore(0)
        self.renewals: list[str] = []
        self.threads: set[str] = set()

    def report(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.looked.release()

    def deadline_renewed(self) -> None:
        self.renewals.append(threading.current_thread().name)


class Line:
    """A heartbeat, and the link on which it sends."""

    def __init__(self, deadline: SessionDeadline, session_timeout: float) -> None:
        self.deadline = deadline
        self.sent: queue.SimpleQueue[Callable[[bool], None]] = queue.SimpleQueue()
        self.beats = 0
        self.drops = 0
        self.timeout = session_timeout
        self.connected = True
        self.drop_fails = False
        self.heartbeat = Heartbeat(
            deadline,
            name="the-heartbeat",
            send=self._send,
            drop=self._drop,
            session_timeout=lambda: self.timeout,
        )
        self.place = Place()

    def _send(self, answered: Callable[[bool], None]) -> None:
        self.beats += 1
        self.sent.put(answered)
        if not self.connected:
            answered(False)

    def _drop(self) -> None:
        self.drops += 1
        if self.drop_fails:
            raise RuntimeError

    def runs(self) -> bool:
        """Whether the thread has been started."""
        return self.heartbeat._thread is not None

    def step(self, times: int = 1) -> None:
        """Let the thread look at everything, and return when it has."""
        for _ in range(times):
            for _ in range(2):  # the second look begins after the first one has sent
                self.heartbeat.hurry()
                assert self.place.looked.acquire(timeout=SOON)

    def answer(self) -> None:
        """The server acknowledges the heartbeat that is under way."""
        self.sent.get(timeout=SOON)(True)


@pytest.fixture
def make_line() -> Iterator[Callable[[SessionDeadline, float], Line]]:
    lines: list[Line] = []

    def make(deadline: SessionDeadline, session_timeout: float = T) -> Line:
        lines.append(Line(deadline, session_timeout))
        return lines[-1]

    yield make
    for line in lines:
        line.heartbeat.stop()
        if line.heartbeat._thread is not None:
            line.heartbeat._thread.join(SOON)
            assert not line.heartbeat._thread.is_alive()


MakeLine = Callable[..., Line]


def test_a_connection_that_is_silent_for_a_third_of_the_timeout_is_dropped(
    clock: Clock, deadline: SessionDeadline, make_line: MakeLine
) -> None:
    line = make_line(deadline)
    line.heartbeat.attend(line.place)
    line.step()
    clock.time += T / 3
    line.step()
    assert line.drops == 0
    clock.time += 0.001
    line.step()
    assert line.drops > 0
    assert line.beats == 1
    line.answer()
    line.step()
    drops = line.drops
    line.step()
    assert line.drops == drops
    assert line.beats == 2


def test_nobody_is_forgotten_who_comes_while_the_thread_goes_to_sleep(
    deadline: SessionDeadline, make_line: MakeLine
) -> None:
    line = make_line(deadline)
    line.heartbeat.attend(line.place)
    for _ in range(300):
        line.heartbeat.dismiss(line.place)
        line.heartbeat.hurry()
        line.heartbeat.attend(line.place)
        line.heartbeat.hurry()
    eventually(lambda: not line.heartbeat._resting, SOON)
    line.step()


def test_a_thread_that_sleeps_keeps_nobody_alive(
    deadline: SessionDeadline, make_line: MakeLine
) -> None:
    line = make_line(deadline)
    line.heartbeat.attend(line.place)
    line.step()
    line.heartbeat.dismiss(line.place)
    line.heartbeat.hurry()
    eventually(lambda: line.heartbeat._resting, SOON)
    place = weakref.ref(line.place)
    line.place = Place()
    gc.collect()
    assert place() is None


def test_a_receiver_that_fails_harms_nobody_else(
    deadline: SessionDeadline, make_line: MakeLine
) -> None:
    class Fails(Place):
        def report(self) -> None:
            raise RuntimeError

    line = make_line(deadline)
    line.heartbeat.attend(Fails())
    line.heartbeat.attend(line.place)
    line.step(3)
    assert line.beats == 1


def test_a_heartbeat_that_cannot_be_sent_does_not_end_the_thread(
    clock: Clock, deadline: SessionDeadline, make_line: MakeLine, caplog: pytest.LogCaptureFixture
) -> None:
    line = make_line(deadline)
    line.drop_fails = True
    line.heartbeat.attend(line.place)
    line.step()
    clock.time += T / 2  # without an answer
    line.step(3)
    assert line.drops >= 3
    assert "a bug in distlock" in caplog.text


def test_a_stopped_heartbeat_ends_its_thread_whatever_it_was_doing(
    deadline: SessionDeadline, make_line: MakeLine
) -> None:
    idle, busy = make_line(deadline), make_line(deadline)
    busy.heartbeat.attend(busy.place)
    idle.heartbeat.attend(idle.place)
    idle.heartbeat.dismiss(idle.place)
    for line in (idle, busy):
        line.heartbeat.stop()
        assert line.heartbeat._thread is not None
        line.heartbeat._thread.join(SOON)
        assert not line.heartbeat._thread.is_alive()


def test_a_deadline_that_runs_out_just_after_a_look_is_looked_at_again(
    make_line: MakeLine, deadline: SessionDeadline, clock: Clock
) -> None:
    class JustMissed(Place):
        def report(self) -> None:
            super().report()
            clock.time = 1000.0 + T

    line = make_line(deadline)
    line.place = JustMissed()
    line.heartbeat.attend(line.place)
    line.heartbeat.hurry()
    for _ in range(2):
        assert line.place.looked.acquire(timeout=SOON)
