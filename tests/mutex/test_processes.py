"""Exclusion, exit, kill and fork, with real processes (promises 1, 6, 7, 8).

With plain kazoo every call hangs in a forked child, where everything seems held, and a normal exit
frees the lock as slowly as SIGKILL.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from distlock import zk_lock
from tests.kit.helpers import spawn_python
from tests.kit.stopwatch import Stopwatch
from tests.kit.tools import PATIENCE, MakeOwner, Tree

if TYPE_CHECKING:
    import subprocess

    from distlock_chaos.server import ZooKeeper

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("tree")]


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
