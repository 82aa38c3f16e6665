"""`manage.py distlock run`, as real processes: what cron, a deployment or an operator would start.

Each command tells what it does by lines on its standard output, which is that of `run`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from distlock import zk_lock
from distlock_chaos.ports import free_ports
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import alive, eventually, spawn_python
from tests.kit.losses import said, tell
from tests.kit.tools import PATIENCE, Tree

if TYPE_CHECKING:
    Run = Callable[..., AbstractContextManager[subprocess.Popen[str]]]
    Outcome = Callable[..., tuple[int, str, str]]

pytestmark = [pytest.mark.deep, pytest.mark.engines("zookeeper", "redis")]


CODE = """
import sys
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=float(sys.argv[3]),
       CONNECT_TIMEOUT=float(sys.argv[4]))
from django.core.management import execute_from_command_line
{before}
execute_from_command_line(["manage.py", "distlock", "run", *sys.argv[5:]])
"""
#: Says that it waits: from then on, a signal comes in the middle of the wait, and of no send.
SAY_THAT_IT_WAITS = """
from distlock.signals import lock_waits
def say(over, **_):
    print("over" if over else "waits", flush=True)
lock_waits.connect(say)
"""

KEY = "nightly"
LOCK = ["--lock", KEY]

#: Says its own process id, then every signal; ends when it reads a line, or with one of `ends`.
OBEDIENT = """
import os, signal, sys
def tell(number, _):
    os.write(1, f"{signal.Signals(number).name}\\n".encode())
    if signal.Signals(number).name in sys.argv[1:]:
        os._exit(3)
for number in (1, 2, 3, 10, 12, 15):
    signal.signal(number, tell)
print(os.getpid(), flush=True)
sys.stdin.readline()
"""
obedient = [sys.executable, "-c", OBEDIENT]


@pytest.fixture
def run(tree: Tree, zookeeper: ZooKeeper) -> Run:
    """Starts `distlock run` in a process of its own.

    Its standard error is compared: a busy server may not be told as one that is away.
    """

    @contextmanager
    def started(
        *arguments: str,
        session_timeout: float = 20,
        connect_timeout: float = PATIENCE,
        hosts: str = zookeeper.hosts,
        before: str = "",
    ) -> Iterator[subprocess.Popen[str]]:
        times = str(session_timeout), str(connect_timeout)
        code = CODE.format(before=before)
        with spawn_python(code, hosts, tree.namespace, *times, *arguments) as process:
            yield process

    return started


@pytest.fixture
def outcome(run: Run) -> Outcome:
    """Lets `distlock run` come to its end; returns its status and what was printed."""

    def of(*arguments: str, **options: Any) -> tuple[int, str, str]:
        with run(*arguments, **options) as process:
            out, errors = process.communicate(timeout=4 * PATIENCE)
            return process.returncode, out, errors

    return of


def errors_of(process: subprocess.Popen[str]) -> str:
    """What it has said on stderr when it has ended, with its stdin still open."""
    process.wait(PATIENCE)
    return process.communicate()[1]


def ended(pid: int) -> None:
    eventually(lambda: not alive(pid), PATIENCE, f"an end of the process {pid}")


# --- as flock ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["sh", "-c", "kill -PIPE $$; exit 1"], 141),  # Python ignores this one, a command may not
    ],
    ids=["exit", "SIGKILL", "SIGPIPE"],
)
def test_the_exit_status_is_the_commands(outcome: Outcome, command: list[str], status: int) -> None:
    assert outcome(*LOCK, "--", *command) == (status, "", "")


def test_arguments_streams_and_environment_are_the_commands(run: Run, tree: Tree) -> None:
    script = 'cat; echo "$@" >&2; echo $DISTLOCK_KEY $DISTLOCK_TOKEN'
    command = ["sh", "-c", script, "name", "--lock", "x y", "--", "--settings=none", "-h"]
    with run(*LOCK, "--", *command) as process:
        out, errors = process.communicate("read\n", timeout=PATIENCE)
    text, key, token = out.split()
    assert (text, key) == ("read", KEY)
    assert int(token) > 0
    assert errors == "--lock x y -- --settings=none -h\n"
    assert process.returncode == 0
    tree.await_line(KEY, 0)


def test_the_lock_is_the_ordinary_lock_of_its_key(run: Run, tree: Tree) -> None:
    with run(*LOCK, "--", *obedient) as process:
        said(process)
        assert not zk_lock(KEY).acquire(timeout=0)
        holder = zk_lock(KEY).holder()
        assert holder is not None
        assert (holder.pid, holder.label) == (process.pid, f"run {Path(sys.executable).name}")
        tell(process)
        process.communicate(timeout=PATIENCE)
    tree.await_line(KEY, 0)


@pytest.mark.parametrize(("options", "status"), [([], 1), (["-E", "0"], 0)])
def test_a_busy_lock_is_said_with_its_holder(
    outcome: Outcome, tree: Tree, options: list[str], status: int
) -> None:
    with zk_lock(KEY, using="other"):
        ended_with, out, errors = outcome(*LOCK, "--timeout", "0", *options, "--", "echo", "ran")
        assert len(tree.line(KEY)) == 1
    assert (ended_with, out) == (status, "")
    assert f":{os.getpid()} MainThread" in errors
    assert "--timeout" in errors


@pytest.mark.usefixtures("tree")
def test_a_command_that_is_over_in_no_time_does_not_run_again(outcome: Outcome) -> None:
    once = [*LOCK, "--timeout", "0", "--hold-at-least", "60", "--", "echo", "ran"]
    assert outcome(*once)[:2] == (0, "ran\n")
    assert outcome(*once)[:2] == (1, "")
    call_command("distlock", "break", KEY, "-y")


def test_zookeeper_that_is_away_is_no_busy_lock(outcome: Outcome) -> None:
    (port,) = free_ports(1)
    away = f"127.0.0.1:{port}"
    status, out, errors = outcome(*LOCK, "--", "echo", "ran", connect_timeout=1, hosts=away)
    assert (status, out) == (69, "")
    assert away in errors


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([*LOCK, "--", "no-such-command"], 127, "not found"),
        ([*LOCK, "--", "/no/such/command"], 127, "not found"),
        ([*LOCK, "--", "/etc/passwd"], 126, "not executable"),
        ([*LOCK, "--", "/"], 126, "not executable"),
        (LOCK, 2, "Name the command"),
        ([*LOCK, "--"], 2, "Name the command"),
        (["--lock", "", "--", "true"], 2, "must not be empty"),
        ([*LOCK, "--using", "nowhere", "--", "true"], 78, "nowhere"),
    ],
)
@pytest.mark.usefixtures("tree")
def test_what_cannot_be_run_is_refused_before_anything_is_held(
    arguments: list[str], status: int, message: str
) -> None:
    with pytest.raises(CommandError, match=message) as raised:
        call_command("distlock", "run", *arguments)
    assert raised.value.returncode == status


@pytest.mark.parametrize(
    "option", ["--timeout=-1", "--timeout=nan", "--timeout=soon", "--grace=-1", "-Ex"]
)
def test_numbers_are_checked(option: str) -> None:
    with pytest.raises(CommandError, match=r"no number of seconds from 0 up|invalid int"):
        call_command("distlock", "run", *LOCK, option, "--", "true")


def test_a_command_that_cannot_be_executed_after_all_leaves_nothing_held(
    outcome: Outcome, tree: Tree, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    status, _, errors = outcome(*LOCK, "--", str(script))
    assert status == 127
    assert errors == f"distlock run: {script}: No such file or directory\n"
    tree.await_line(KEY, 0)


# --- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGUSR1"])
def test_a_signal_is_passed_on_and_its_answer_is_the_commands(run: Run, name: str) -> None:
    with run(*LOCK, "--", *obedient, name) as process:
        said(process)
        process.send_signal(signal.Signals[name])
        assert said(process) == name
        assert errors_of(process) == ""
        assert process.returncode == 3


def test_the_lock_is_held_until_a_command_that_takes_its_time_has_ended(
    run: Run, tree: Tree
) -> None:
    with run(*LOCK, "--", *obedient) as process:
        said(process)
        process.send_signal(signal.SIGTERM)
        assert said(process) == "SIGTERM"
        assert not zk_lock(KEY).acquire(timeout=0)
        tell(process)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    tree.await_line(KEY, 0)


def test_what_ignores_sigterm_gets_sigkill_after_the_grace(run: Run, tree: Tree) -> None:
    with run(*LOCK, "--grace", "0.3", "--", *obedient) as process:
        said(process)
        process.send_signal(signal.SIGTERM)
        errors = errors_of(process)
    assert process.returncode == 137
    assert errors == "distlock run: what got SIGTERM has not ended in time; SIGKILL.\n"
    tree.await_line(KEY, 0)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_wait_with_nothing_left(run: Run, tree: Tree, name: str) -> None:
    command = (*LOCK, "--", "echo", "ran")
    with zk_lock(KEY, using="other"), run(*command, before=SAY_THAT_IT_WAITS) as process:
        assert said(process) == "waits"
        tree.await_line(KEY, 2)
        process.send_signal(signal.Signals[name])
        assert process.communicate(timeout=PATIENCE) == ("over\n", "")
        assert process.returncode == 128 + signal.Signals[name]
        tree.await_line(KEY, 1)


# --- what a script has started -------------------------------------------------------------------

#: Starts another one in the background, says its process id, and waits for a line.
PARENT = "sleep 1000 <&- >&- 2>&- & echo $!; read line; exit 5"


def test_a_signal_reaches_what_a_script_has_started(run: Run) -> None:
    with run(*LOCK, "--", "sh", "-c", PARENT) as process:
        child = int(said(process))
        process.send_signal(signal.SIGTERM)
        assert errors_of(process) == ""
        assert process.returncode == 143
        ended(child)


def test_what_the_command_leaves_behind_is_ended_before_the_release(run: Run, tree: Tree) -> None:
    with run(*LOCK, "--", "sh", "-c", PARENT) as process:
        child = int(said(process))
        tell(process)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 5
        assert errors == (
            "distlock run: the command has ended and left processes behind; SIGTERM.\n"
        )
        assert not alive(child)
    tree.await_line(KEY, 0)


def test_a_command_that_waits_for_all_its_children_does_not_wait_for_the_watchdog(
    outcome: Outcome,
) -> None:
    waits = "import os\ntry:\n while True: os.wait()\nexcept ChildProcessError: print('none')"
    assert outcome(*LOCK, "--", sys.executable, "-c", waits) == (0, "none\n", "")


# --- the lock is lost ----------------------------------------------------------------------------


def test_the_command_is_ended_when_the_lock_is_broken(run: Run, tree: Tree) -> None:
    with run(*LOCK, "--", *obedient, "SIGTERM", session_timeout=4) as process:
        said(process)
        (node,) = tree.line(KEY)
        tree.client.delete(f"{tree.path(KEY)}/{node}")
        assert said(process) == "SIGTERM"
        errors = errors_of(process)
        assert process.returncode == 75
    assert f"distlock run: the lock {KEY!r} is lost, or about to be; SIGTERM." in errors


@pytest.mark.engines("zookeeper")
def test_a_link_that_heals_after_sigterm_does_not_make_it_a_success(
    run: Run, tree: Tree, broken_link: TcpProxy
) -> None:
    with run(*LOCK, "--", *obedient, session_timeout=12, hosts=broken_link.address) as process:
        said(process)
        broken_link.black_hole()
        assert said(process) == "SIGTERM"
        broken_link.pass_through()
        assert len(tree.line(KEY)) == 1  # nobody else has it
        tell(process)
        errors_of(process)
        assert process.returncode == 75


#: Ignores SIGTERM and appends a letter to a file as fast as it can; says when it has begun.
SCRIBE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(1, b"writes\\n")
while True:
    os.write(file, sys.argv[2].encode())
    time.sleep(0.001)
"""


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["SIGKILL", "SIGSTOP"])
def test_the_command_is_gone_before_the_next_one_starts_whatever_happens_to_run(
    run: Run, tmp_path: Path, fault: signal.Signals
) -> None:
    """The holder cannot end the command any more: its watchdog does, before the session ends."""
    written = tmp_path / "written"
    scribe = [sys.executable, "-c", SCRIBE, str(written)]
    with run(*LOCK, "--", *scribe, "a", session_timeout=4) as first:
        assert said(first) == "writes"
        with run(*LOCK, "--grace", "0", "--", *scribe, "b", session_timeout=4) as second:
            eventually(lambda: len(zk_lock(KEY).participants()) == 2, PATIENCE)
            first.send_signal(fault)
            assert said(second) == "writes"
            eventually(lambda: written.read_text().count("b") > 20, PATIENCE)
            second.send_signal(signal.SIGTERM)
            second.communicate(timeout=PATIENCE)
        first.kill()
        _, errors = first.communicate(timeout=PATIENCE)
    text = written.read_text()
    assert text == "a" * text.count("a") + "b" * text.count("b")
    assert "it gets SIGKILL" in errors


def test_a_command_that_obeys_ends_at_once_when_run_is_killed(run: Run, tree: Tree) -> None:
    with run(*LOCK, "--", *obedient, "SIGTERM", session_timeout=4) as process:
        pid = int(said(process))
        process.kill()
        assert said(process) == "SIGTERM"
        ended(pid)
        errors = errors_of(process)
    assert errors == (
        "distlock run: the process that holds the lock has died; the command gets SIGTERM.\n"
    )
    tree.await_line(KEY, 0)
