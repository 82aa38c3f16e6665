"""What the bounds of other tests go by: it forgives the machine, and nothing else."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from .helpers import spawn_python
from .losses import pass_time, said, tell
from .stopwatch import Stopwatch
from .tools import within

# Waits for half a second, or is stopped for longer than that; says what it took.
WAITS = """
import sys, threading
from tests.kit.stopwatch import Stopwatch
with Stopwatch() as watch:
    print("begun")
    sys.stdin.readline()
print(watch.elapsed, watch.held_up, watch.taken)
sys.stdin.readline()
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_a_stop_of_the_process_does_not_count_and_a_wait_of_its_own_does(stopped: bool) -> None:
    with spawn_python(WAITS) as process:
        assert said(process) == "begun"
        if stopped:
            os.kill(process.pid, signal.SIGSTOP)
        pass_time(2)
        tell(process)
        if stopped:
            os.kill(process.pid, signal.SIGCONT)
        elapsed, held_up, taken = map(float, said(process).split())
    assert elapsed >= 2
    assert taken == pytest.approx(elapsed - held_up)
    assert (held_up > 1.5) is stopped


def test_a_block_that_takes_too_long_fails() -> None:
    with pytest.raises(AssertionError, match=r"may take 0\.2 s"), within(0.2):
        pass_time(2)


def test_its_thread_ends_with_the_block() -> None:
    with Stopwatch() as watch:
        assert watch._thread in threading.enumerate()
    assert watch._thread not in threading.enumerate()
    elapsed = watch.elapsed
    pass_time(0.05)
    assert watch.elapsed == elapsed
