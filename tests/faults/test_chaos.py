"""`manage.py distlock chaos` for real: distlock passes, kazoo's own `Lock` does not.

Both run the schedule of one seed: a black hole with other traffic in the process, a fork, a short
cut, an operator's break, a stop past the session's expiry, a restart of the server, an interrupted
waiter, all aimed at holders and waiters. What the checker says of kazoo's `Lock` proves that it
sees.
"""

from __future__ import annotations

import logging
import math
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from distlock_chaos import history
from distlock_chaos.analysis.checker import check
from distlock_chaos.analysis.timeline import Timeline
from distlock_chaos.install import ServerNotInstalled, java, zookeeper_jars
from distlock_chaos.schedule import plan
from tests.faults.tools import Story
from tests.kit.helpers import alive, eventually, spawn_python

pytestmark = pytest.mark.deep

SEED = 6082
SECONDS = 34

CODE = """
import sys
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "distlock", "chaos", *sys.argv[1:]])
"""


@pytest.fixture
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


def assert_played(folder: Path, *arguments: str) -> None:
    """Play a scene, with another seed if it is called off: the queue was another one just then."""
    for seed in ("1", "2"):
        status, output, errors, timeline = chaos(folder, *arguments, "--seed", seed)
        assert status == 0, output + errors
        if "called off" not in errors:
            break
    assert "called off" not in errors
    assert len(timeline.faults) > 1
    assert all(found.healed < math.inf for found in timeline.faults)


def size(recipe: str) -> Sequence[str]:
    options = {"seed": SEED, "seconds": SECONDS, "processes": 3, "recipe": recipe}
    return [f"--{name}={value}" for name, value in options.items()]


@pytest.mark.usefixtures("_needs_zookeeper")
def test_distlock_passes(tmp_path: Path) -> None:
    status, output, errors, timeline = chaos(tmp_path, *size("distlock"))
    assert status == 0, output + errors
    assert len(output.splitlines()) == 1
    assert output.endswith("passed\n")
    planned = plan(SEED, SECONDS, nodes=1, session_timeout=4)
    assert [fault.kind for fault in timeline.faults] == [fault.kind for fault in planned]
    assert len(timeline.holds) > 100
    assert {"released", "lost"} <= {call.how for call in timeline.holds}


@pytest.mark.usefixtures("_needs_zookeeper")
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
        ("--fault=earthquake", "There is no fault 'earthquake'"),
        ("--session-timeout=1", "ZooKeeper grants 2 to 20 ticks"),
        ("--tick=3", "ZooKeeper grants 2 to 20 ticks"),
    ],
)
def test_a_run_that_would_show_nothing_is_refused(option: str, message: str) -> None:
    levels = [logging.getLogger(name).level for name in ("distlock", "kazoo")]
    with pytest.raises(CommandError, match=message):
        call_command("distlock", "chaos", option)
    assert [logging.getLogger(name).level for name in ("distlock", "kazoo")] == levels


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine=redis", "--strict"], "no --strict"),
        (["--engine=redis", "--recipe=kazoo"], "no recipe of kazoo"),
        (["--engine=redis", "--nodes=3", "--fault=leader kill"], "is one of ZooKeeper's servers"),
        (["--engine=redis", "--fault=failover"], "needs 3 servers"),
        (["--fault=late bytes"], "is one of Redis"),
        (["--volatile"], "--volatile is for Redis"),
    ],
)
def test_a_fault_or_an_option_of_the_other_engine_is_refused(
    options: list[str], message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("distlock", "chaos", *options)


@pytest.mark.usefixtures("_needs_zookeeper")
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


@pytest.mark.usefixtures("_needs_zookeeper")
@pytest.mark.parametrize(
    ("recipe", "modes"),
    [
        ("rwlock", {"read", "write"}),
        ("semaphore", {"permit"}),
        ("multilock", {"lock"}),
        ("lease", {"lease"}),
    ],
)
def test_the_other_locks_pass(tmp_path: Path, recipe: str, modes: set[str]) -> None:
    size = "--seconds=22", "--processes=3", "--fault=kill", "--fault=cut", "--fault=stop"
    status, output, errors, timeline = chaos(tmp_path, f"--recipe={recipe}", *size)
    assert status == 0, output + errors
    assert {hold.mode for hold in timeline.holds} == modes
    assert len(timeline.holds) > 30


@pytest.mark.parametrize(
    "options",
    [
        ["--fault=stop", "--fault=black hole", "--fault=server kill"],
        ["--volatile", "--fault=server kill"],
        ["--fault=late bytes", "--fault=flush"],
        ["--fault=refusals", "--fault=stop"],
        ["--fault=replaced server", "--seconds=34"],
    ],
    ids=["kept on disk", "volatile", "of Redis alone", "refusing", "replaced"],
)
def test_locks_in_redis_pass(tmp_path: Path, options: list[str]) -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server was not found.")
    size = "--engine=redis", "--seconds=22", "--processes=3", "--session-timeout=3"
    status, output, errors, timeline = chaos(tmp_path, *size, *options)
    assert status == 0, output + errors
    assert len(timeline.faults) > 1
    assert len(timeline.holds) > 30
    assert "lost" in {call.how for call in timeline.holds}


def test_no_lock_in_redis_depends_on_the_servers_clock(tmp_path: Path) -> None:
    if shutil.which("redis-server") is None or shutil.which("cc") is None:
        pytest.skip("redis-server or cc was not found.")
    size = "--engine=redis", "--seconds=25", "--processes=3", "--fault=server clock"
    status, output, errors, timeline = chaos(tmp_path, *size)
    assert status == 0, output + errors
    assert len(timeline.faults) > 1
    assert len(timeline.holds) > 30


@pytest.mark.usefixtures("_needs_zookeeper")
@pytest.mark.parametrize(
    ("fault", "options"),
    [
        ("clock step", ["--recipe=lease"]),
        ("leader pause", ["--nodes=3", "--seconds=20"]),
        ("long pause", []),
        # One to a renewal, and one to an acquire.
        ("late answer", ["--nodes=3", "--seconds=39"]),
        ("longer timeouts", ["--nodes=3", "--seconds=68"]),
        ("lost reply", ["--nodes=3", "--seconds=54", "--session-timeout=20"]),
    ],
)
def test_a_scene_is_played_to_its_end(tmp_path: Path, fault: str, options: list[str]) -> None:
    assert_played(tmp_path, f"--fault={fault}", "--seconds=14", "--processes=3", *options)


@pytest.mark.parametrize("fault", ["late acquire", "failover", "demoted primary", "undone break"])
def test_a_scene_of_redis_is_played_to_its_end(tmp_path: Path, fault: str) -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server was not found.")
    size = "--engine=redis", "--seconds=34", "--processes=3", "--nodes=3"
    assert_played(tmp_path, f"--fault={fault}", *size)


# --- histories -----------------------------------------------------------------------------------


@pytest.fixture
def story() -> Story:
    story = Story()
    story.hold(1, "a", 10)
    return story


def saved(story: Story, path: Path) -> str:
    history.write(path, story.timeline().events)
    return str(path)


def test_a_good_history_is_checked_without_servers(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story.release(2, "a")
    call_command("distlock", "chaos", "--check", saved(story, tmp_path / "history"))
    output = capsys.readouterr().out
    assert output.startswith("distlock, seed 7, 30 s; 3 processes, 1 servers; ")
    assert output.endswith("; passed\n")


def test_a_bad_history_is_found_out_without_servers(story: Story, tmp_path: Path) -> None:
    story.hold(2, "b", 11, pid=2)
    with pytest.raises(CommandError, match=r"overlaps: a on key \(token 10\) held for "):
        call_command("distlock", "chaos", "--check", saved(story, tmp_path / "history"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no history", "line 1: not an event of a history: no history"),
        ('{"event": "run", "at": 1, "format": 1}\n{}', "line 2: not an event of a history: {}"),
        ('{"event": "run", "at": 1, "format": 9}', "The history has format 9, and this version"),
    ],
)
def test_what_is_no_history_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "history"
    path.write_text(text)
    with pytest.raises(CommandError, match=message):
        call_command("distlock", "chaos", "--check", str(path))


def test_a_history_is_exported(story: Story, tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    call_command(
        "distlock", "chaos", "--check", saved(story, tmp_path / "history"), "--edn", str(path)
    )
    first, _ = path.read_text().splitlines()
    assert first.startswith("{:index 0, :time 999000000, :process 0, :type :invoke, :f :acquire, ")


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
