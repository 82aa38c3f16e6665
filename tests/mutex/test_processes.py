"""Exclusion, exit, kill and fork, with real processes (promises 1, 6, 7, 8).

With plain kazoo every call hangs in a forked child, where everything seems held, and a normal exit
frees the lock as slowly as SIGKILL.
"""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from distlock import zk_lock
from tests.kit.helpers import spawn_python
from tests.kit.stopwatch import Stopwatch
from tests.kit.tools import PATIENCE, MakeOwner, Tree

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from distlock_chaos.server import ZooKeeper

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("tree")]

# Adds to a number in a file, without any care, and tells the history of its holds.
COUNTS = """
import json, os, sys, threading, time
from pathlib import Path
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2])
from distlock import zk_lock

counter, rounds = Path(sys.argv[3]), int(sys.argv[5])
history = os.open(sys.argv[4], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def count():
    for _ in range(rounds):
        with zk_lock("key") as hold:
            acquired = time.monotonic_ns()
            number = int(counter.read_text())
            counter.write_text(str(number + 1))
            said = {"token": hold.token, "acquired": acquired, "released": time.monotonic_ns()}
            os.write(history, json.dumps(said).encode() + b"\\n")

threads = [threading.Thread(target=count) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_four_processes_of_two_threads_each_never_hold_together(
    tree: Tree, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    counter, history, rounds = tmp_path / "counter", tmp_path / "history", 25
    counter.write_text("0")
    arguments = (zookeeper.hosts, tree.namespace, str(counter), str(history), str(rounds))
    with ExitStack() as stack:
        processes = [stack.enter_context(spawn_python(COUNTS, *arguments)) for _ in range(4)]
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    assert int(counter.read_text()) == 4 * 2 * rounds
    holds = [json.loads(line) for line in history.read_text().splitlines()]
    assert len(holds) == 4 * 2 * rounds
    holds.sort(key=lambda hold: hold["token"])
    assert len({hold["token"] for hold in holds}) == len(holds)
    for hold, following in itertools.pairwise(holds):
        assert hold["acquired"] < hold["released"] < following["acquired"]


# Holds, says so, and ends as it is told.
HOLDS = """
import os, signal, sys
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=float(sys.argv[3]))
from distlock import zk_lock
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
assert zk_lock("key").acquire()
print("held")
how = sys.stdin.readline().strip()
if how == "raise":
    raise KeyError
if how == "_exit":
    os._exit(0)
"""

SESSION_TIMEOUT = 4
WaitingFor = Callable[[float, Callable[["subprocess.Popen[str]"], None]], Stopwatch]


@pytest.fixture
def waiting_for(tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner) -> WaitingFor:
    """How long the next in line waits after the holder's process was made to end."""

    def wait(session_timeout: float, end: Callable[[subprocess.Popen[str]], None]) -> Stopwatch:
        arguments = (zookeeper.hosts, tree.namespace, str(session_timeout))
        with spawn_python(HOLDS, *arguments) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            waiter = make_owner()
            granted = waiter.submit(zk_lock("key").acquire, timeout=PATIENCE)
            tree.await_line("key", 2)
            with Stopwatch() as watch:
                end(process)
                process.communicate(timeout=PATIENCE)
                assert granted.result(PATIENCE)
            waiter.now(zk_lock("key").release)
            return watch

    return wait


def say(text: str) -> Callable[[subprocess.Popen[str]], None]:
    def tell(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{text}\n")
        process.stdin.flush()

    return tell


def send(number: signal.Signals) -> Callable[[subprocess.Popen[str]], None]:
    return lambda process: process.send_signal(number)


@pytest.mark.parametrize(
    "end",
    [say("return"), say("raise"), send(signal.SIGTERM), send(signal.SIGINT)],
    ids=["return", "raise", "SIGTERM", "SIGINT"],
)
def test_a_process_that_ends_in_order_frees_its_locks_at_once(
    waiting_for: WaitingFor, end: Callable[[subprocess.Popen[str]], None]
) -> None:
    assert waiting_for(20, end).taken < 5


@pytest.mark.parametrize("end", [say("_exit"), send(signal.SIGKILL)], ids=["_exit", "SIGKILL"])
def test_a_process_that_dies_keeps_its_locks_until_its_session_ends(
    waiting_for: WaitingFor, end: Callable[[subprocess.Popen[str]], None]
) -> None:
    waited = waiting_for(SESSION_TIMEOUT, end)
    # The server counts from the last heartbeat, and rounds up to its tick of one second.
    assert waited.elapsed > SESSION_TIMEOUT / 3
    assert waited.taken < SESSION_TIMEOUT + 1 + 1


# Forks a child of multiprocessing that holds and simply returns; such children run no atexit.
WORKER_RETURNS = """
import multiprocessing, sys
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=20)
from distlock import zk_lock
worker = multiprocessing.get_context("fork").Process(target=zk_lock("key").acquire)
worker.start()
worker.join()
print(worker.exitcode)
"""


def test_a_child_of_multiprocessing_that_returns_frees_its_locks_at_once(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with spawn_python(WORKER_RETURNS, zookeeper.hosts, tree.namespace) as process:
        assert process.communicate(timeout=PATIENCE)[0] == "0\n"
    tree.await_line("key", 0)


# The parent holds a lock and forks; the child tries everything, and ends in several ways.
FORKS = """
import json, os, sys
from tests.kit.helpers import eventually
from tests.kit.tools import MakeOwner, await_connection, set_up
set_up(sys.argv[1], sys.argv[2])
from distlock import LockBusy, NotOwner, zk_lock
from distlock.session.registry import session_for

lock = zk_lock("key")
assert lock.acquire()
parents = await_connection().id
reading, writing = os.pipe()
pid = os.fork()
if pid == 0:
    said = {"held": lock.held}
    try:
        lock.release()
    except NotOwner:
        said["release"] = "NotOwner"
    said["try"] = lock.acquire(timeout=0)
    try:
        with zk_lock("key", timeout=0.1):
            said["busy"] = False
    except LockBusy:
        said["busy"] = True
    with zk_lock("another") as hold:
        said["token"] = hold.token
    said["own session"] = session_for().id not in (0, parents)
    os.write(writing, json.dumps(said).encode())
    os.close(writing)
    if sys.argv[3] == "_exit":
        # Releases are not waited for, and nobody closes this child's session.
        eventually(lambda: not zk_lock("another").locked())
        os._exit(0)
    sys.exit(0)
os.close(writing)
with os.fdopen(reading) as child:
    said = json.load(child)
_, status = os.waitpid(pid, 0)
said["status"] = status
said["parent holds"] = lock.held and session_for().id == parents
print(json.dumps(said))
sys.stdin.readline()
with zk_lock("key") as hold:
    hold.verify()
lock.release()
print("released")
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["exit", "_exit"])
def test_a_forked_child_starts_clean_and_leaves_the_hold_of_its_parent_alone(
    tree: Tree, zookeeper: ZooKeeper, end: str
) -> None:
    with spawn_python(FORKS, zookeeper.hosts, tree.namespace, end) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        said = json.loads(line)
        assert isinstance(said.pop("token"), int)
        assert said == {
            "held": False,
            "release": "NotOwner",
            "try": False,
            "busy": True,
            "own session": True,
            "status": 0,
            "parent holds": True,
        }
        tree.await_line("key", 1)
        assert not zk_lock("key").acquire(timeout=0)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "released\n"
        assert zk_lock("key").acquire()  # while the other process lives
        zk_lock("key").release()
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


# Forks while other threads of the parent are in the middle of taking and leaving the line.
FORKS_IN_MOTION = """
import os, sys, threading
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2])
from distlock import zk_lock

done = threading.Event()

def use(key):
    while not done.is_set():
        with zk_lock(key):
            pass

threads = [threading.Thread(target=use, args=[f"key-{n % 2}"]) for n in range(4)]
for thread in threads:
    thread.start()
statuses = []
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        with zk_lock("key-0", timeout=10), zk_lock("key-1", timeout=10):
            pass
        sys.exit(7)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
done.set()
for thread in threads:
    thread.join()
print(statuses)
"""


def test_a_child_can_lock_whatever_its_parent_was_doing_at_the_fork(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with spawn_python(FORKS_IN_MOTION, zookeeper.hosts, tree.namespace) as process:
        said, errors = process.communicate(timeout=80)
    assert said == f"{[7] * 5}\n", errors
