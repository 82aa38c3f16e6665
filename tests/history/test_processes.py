"""Processes that record events and end, fork, or write to one table together."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from distlock.models import LockEvent
from tests.history.conftest import counted, keys
from tests.kit.helpers import spawn_python
from tests.kit.tools import PATIENCE
from tests.servers.conftest import database, site

pytestmark = pytest.mark.deep

__all__ = ["database", "site"]

# However slow the machine, the end of the process has time for all rows.
PREAMBLE = f"""
import os, sys, threading, time
import django; django.setup()

from distlock import history as recorder
from tests.history.tools import refuse
recorder.Recorder.flush.__defaults__ = ({PATIENCE},)
"""


def environment(options: dict[str, Any], **more: Any) -> dict[str, str]:
    """What a process needs to keep a history in this database."""
    project = {
        "DATABASES": {"default": options},
        "DISTLOCK": {"default": {"HISTORY": 1000, **more}},
    }
    return {
        "DJANGO_SETTINGS_MODULE": "tests.testproject.settings",
        "TESTPROJECT": json.dumps(project, default=str),
    }


@pytest.fixture
def run(options: dict[str, Any], table: None) -> Callable[..., str]:  # noqa: ARG001
    """Runs a program to its end, with this database, and returns what it prints."""

    def run(code: str, **more: Any) -> str:
        with spawn_python(PREAMBLE + code, environment=environment(options, **more)) as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out

    return run


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "raise SystemExit"])
def test_the_end_of_a_process_writes_the_rest(run: Callable[..., str], end: str) -> None:
    run(f"refuse('last')\n{end}")
    assert keys() == ["last"]
    assert counted("busy") == 1


def test_a_full_queue_is_written_at_the_end(run: Callable[..., str]) -> None:
    run("for number in range(2000): refuse(f'k{number}')", HISTORY=5000)
    assert keys() == [f"k{number}" for number in range(2000)]


def test_a_process_without_events_starts_no_thread(run: Callable[..., str]) -> None:
    out = run("print(threading.active_count(), recorder._recorder.flush())")
    assert out == "1 True\n"


def test_a_process_ends_in_time_when_the_database_is_away(
    run: Callable[..., str], options: dict[str, Any]
) -> None:
    options.update({"HOST": "127.0.0.1", "PORT": "1", "NAME": "/no/such/folder/file"})
    out = run("refuse()\nimport atexit; began = time.monotonic()\nprint(began)")
    assert out


# --- forks ---------------------------------------------------------------------------------------

FORK = """
refuse("parent before")
child = os.fork()
if not child:
    assert recorder._recorder._events.empty() and not recorder._recorder._counts
    refuse("child")
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
refuse("parent after")
"""

IN_THE_MIDDLE = """
for number in range(60):
    refuse("parent")
    child = os.fork()
    if not child:
        refuse("child")
        recorder.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_writes_its_own_events_and_the_parent_its_own(
    run: Callable[..., str],
) -> None:
    run(FORK)
    assert sorted(keys()) == ["child", "parent after", "parent before"]
    assert LockEvent.objects.values("pid").distinct().count() == 2
    assert counted("busy") == 3


# SQLite's own state in memory does not survive a fork during a write.
@pytest.mark.parametrize("options", ["postgresql"], indirect=True)
def test_forks_in_the_middle_of_a_batch_lose_nothing_and_repeat_nothing(
    run: Callable[..., str],
) -> None:
    run(IN_THE_MIDDLE)
    assert sorted(keys()) == ["child"] * 60 + ["parent"] * 60
    assert counted("busy") == 120


# --- several processes ---------------------------------------------------------------------------

ADD = """
from distlock import minutes
keys = [(int(time.time()) // 60, "default", f"t{number}", "wait", 3) for number in range(3)]
print("ready")
sys.stdin.readline()
for _ in range(100):
    minutes.write(dict.fromkeys(keys, 2), "default")
"""


def test_two_processes_that_count_in_the_same_minute_lose_nothing(
    options: dict[str, Any],
    table: None,  # noqa: ARG001
) -> None:
    said = environment(options)
    with (
        spawn_python(PREAMBLE + ADD, environment=said) as one,
        spawn_python(PREAMBLE + ADD, environment=said) as other,
    ):
        for process in (one, other):
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        for process in (one, other):
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        results = [process.communicate(timeout=60) for process in (one, other)]
        assert (one.returncode, other.returncode) == (0, 0), results
    assert counted("wait") == 2 * 3 * 100 * 2


def test_the_bound_is_kept_with_two_processes_writing(
    options: dict[str, Any], run: Callable[..., str]
) -> None:
    code = f"{PREAMBLE}\nfor number in range(500):\n    refuse()\n    time.sleep(0.002)"
    said = environment(options, HISTORY=100)
    most = 0
    with (
        spawn_python(code, environment=said) as one,
        spawn_python(code, environment=said) as other,
    ):
        while one.poll() is None or other.poll() is None:
            # A batch of each comes on top.
            most = max(most, LockEvent.objects.count())
        assert (one.wait(), other.wait()) == (0, 0)
    assert most <= 100 + 2 * 600
    run("refuse('last')", HISTORY=100)  # prunes first
    assert LockEvent.objects.count() == 100
    assert keys()[-1] == "last"
