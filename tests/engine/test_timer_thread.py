"""One thread calls all that is due, in its order, and keeps nothing alive."""

from __future__ import annotations

import gc
import os
import threading
import weakref

from distlock.engine.timer import call_later
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE


class Bell:
    """Notes that it was rung."""

    def __init__(self, name: str, rung: list[str]) -> None:
        self.name = name
        self._rung = rung

    def ring(self) -> None:
        self._rung.append(self.name)

    def fail(self) -> None:
        raise ZeroDivisionError


def test_what_is_due_first_is_called_first_on_one_thread() -> None:
    rung: list[str] = []
    bells = [Bell(str(number), rung) for number in range(5)]
    for bell in reversed(bells):
        call_later(0.02 * int(bell.name) + 0.1, bell.ring)
    threads = threading.active_count()
    eventually(lambda: len(rung) == 5, PATIENCE)
    assert rung == ["0", "1", "2", "3", "4"]
    assert threading.active_count() <= threads


def test_a_step_that_fails_is_logged_and_the_next_one_called() -> None:
    rung: list[str] = []
    bell = Bell("once", rung)
    call_later(0.01, bell.fail)
    call_later(0.02, bell.ring)
    eventually(lambda: rung == ["once"], PATIENCE)


def test_whoever_has_gone_is_not_kept_for_it() -> None:
    rung: list[str] = []
    bell, last = Bell("gone", rung), Bell("last", rung)
    gone = weakref.ref(bell)
    call_later(0.05, bell.ring)
    call_later(0.06, last.ring)
    del bell
    gc.collect()
    assert gone() is None
    eventually(lambda: rung == ["last"], PATIENCE)


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
