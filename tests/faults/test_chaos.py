"""`manage.py distlock chaos` for real: distlock passes, kazoo's own `Lock` does not.

Both run the schedule of one seed: a black hole with other traffic in the process (PITFALLS 25a), a
fork (23), a short cut (25f), an operator's break, a stop past the session's expiry (19, 25d), a
restart of the server, an interrupted waiter (3), all aimed at holders and waiters. What the checker
says of kazoo's `Lock` proves that it sees.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command

from distlock.testing.chaos import history
from distlock.testing.chaos.checker import check
from distlock.testing.chaos.schedule import plan
from distlock.testing.chaos.timeline import Timeline
from distlock.testing.install import ServerNotInstalled, java, zookeeper_jars
from tests.helpers import alive, eventually, spawn_python

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 6082
SECONDS = 34

CODE = """
import sys
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "distlock", "chaos", *sys.argv[1:]])
"""


@pytest.fixture(autouse=True)
def _needs_zookeeper() -> None:
    try:
        java(), zookeeper_jars()
    except ServerNotInstalled as error:
        pytest.skip(str(error))


def chaos(folder: Path, *arguments: str) -> tuple[int, str, str, Timeline]:
    """Run the command; return status, stdout, stderr, and what its history tells."""
    path = folder / "history.jsonl"
    with spawn_python(CODE, *arguments, "--history", str(path)) as process:
        output, errors = process.communicate(timeout=SECONDS + 120)
    return process.returncode, output, errors, Timeline(history.read(path))


def size(recipe: str) -> Sequence[str]:
    options = {"seed": SEED, "seconds": SECONDS, "processes": 3, "recipe": recipe}
    return [f"--{name}={value}" for name, value in options.items()]


def test_distlock_passes(tmp_path: Path) -> None:
    status, output, errors, timeline = chaos(tmp_path, *size("distlock"))
    assert status == 0, output + errors
    assert len(output.splitlines()) == 1
    assert output.endswith("passed\n")
    planned = plan(SEED, SECONDS, nodes=1, session_timeout=4)
    assert [fault.kind for fault in timeline.faults] == [fault.kind for fault in planned]
    assert len(timeline.holds) > 100
    assert {"released", "lost"} <= {call.how for call in timeline.holds}


def test_the_checker_finds_what_kazoos_lock_does_under_the_same_schedule(tmp_path: Path) -> None:
    status, output, errors, timeline = chaos(tmp_path, *size("kazoo"))
    assert status == 1, output + errors
    assert "FAILED" in output
    assert "Violations:" in errors
    gates = {violation.gate for violation in check(timeline)}
    assert gates >= {"stale acts", "overlaps", "believing children"}, output + errors


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--processes=1", "two are the fewest"),
        ("--seconds=3", "too short for a single fault"),
        ("--nodes=2", "give an odd number"),
    ],
)
def test_a_run_that_would_show_nothing_is_refused(option: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("distlock", "chaos", option)


def test_ctrl_c_ends_all_that_it_has_started(tmp_path: Path) -> None:
    with spawn_python(CODE, *size("distlock"), f"--history={tmp_path / 'h'}") as process:
        assert process.stderr is not None
        process.stderr.readline()  # the first fault
        children = descendants(process.pid)
        assert len(children) > 3  # the workers, and the server with its guard
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted" in errors
    eventually(lambda: not any(alive(pid) for pid in children), 20, f"no process of {children}")


def descendants(pid: int) -> list[int]:
    """The processes that `pid` has started, and that these have started."""
    listed = subprocess.run(
        ["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    parents = {int(line.split()[0]): int(line.split()[1]) for line in listed.splitlines()}
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return [child for child in found if child != pid]
