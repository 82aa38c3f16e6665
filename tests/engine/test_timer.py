"""One thread calls all that is due, in its order, and keeps nothing alive."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from distlock.engine import timer
from distlock.engine.timer import call_later
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("own_timer")


class Bell:
    """Notes that it was rung."""

    def __init__(self, name: str, rung: list[str]) -> None:
        self.name = name
        self._rung = rung

    def ring(self) -> None:
        self._rung.append(self.name)

    def fail(self) -> None:
        raise ZeroDivisionError


class Gate:
    """Keeps the timer's thread until it is opened."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self.open = self._opened.set

    def keep(self) -> None:
        assert self._opened.wait(PATIENCE)


@contextmanager
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the block take no time, however busy the machine is."""
    moment = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(timer, "time", SimpleNamespace(monotonic=lambda: moment))
        yield


def test_what_is_due_first_is_called_first_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[str] = []
    bells = [Bell(str(number), rung) for number in range(5)]
    with at_once(monkeypatch):
        for bell in reversed(bells):
            call_later(0.02 * int(bell.name) + 0.1, bell.ring)
    threads = threading.active_count()
    eventually(lambda: len(rung) == 5, PATIENCE)
    assert rung == ["0", "1", "2", "3", "4"]
    assert threading.active_count() <= threads


def test_a_step_further_off_than_a_thread_can_wait_does_no_harm() -> None:
    rung: list[str] = []
    never, soon = Bell("never", rung), Bell("soon", rung)
    call_later(1e12, never.ring)
    call_later(0.05, soon.ring)
    eventually(lambda: rung, PATIENCE)
    assert rung == ["soon"]


def test_a_step_that_fails_is_logged_and_the_next_one_called() -> None:
    rung: list[str] = []
    bell = Bell("once", rung)
    call_later(0.01, bell.fail)
    call_later(0.02, bell.ring)
    eventually(lambda: rung == ["once"], PATIENCE)


def test_whoever_has_gone_is_not_kept_for_it() -> None:
    rung: list[str] = []
    gate, bell, last = Gate(), Bell("gone", rung), Bell("last", rung)
    gone = weakref.ref(bell)
    call_later(0, gate.keep)
    call_later(0.01, bell.ring)
    call_later(0.02, last.ring)
    del bell
    gc.collect()
    assert gone() is None
    gate.open()
    eventually(lambda: rung == ["last"], PATIENCE)


def test_steps_whose_objects_are_gone_are_forgotten() -> None:
    rung: list[str] = []
    kept = Bell("kept", rung)
    call_later(3600, kept.ring)
    for _ in range(3 * timer.MANY):
        call_later(3600, Bell("gone", rung).ring)
    gc.collect()
    running = timer._timer
    assert running is not None
    eventually(running.orders.empty, PATIENCE)
    call_later(0, kept.ring)
    eventually(lambda: rung == ["kept"], PATIENCE)
    # A sweep allows for twice the steps that it met alive: "kept", and one that was just made.
    eventually(lambda: len(running.due) <= timer.MANY + 4, PATIENCE)


def test_a_forked_child_has_a_timer_of_its_own() -> None:
    rung: list[str] = []
    before = Bell("before", rung)
    call_later(0.01, before.ring)
    eventually(lambda: rung, PATIENCE)
    pid = os.fork()
    if pid == 0:
        bell = Bell("child", rung)
        call_later(0.01, bell.ring)
        eventually(lambda: rung == ["before", "child"], PATIENCE)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
