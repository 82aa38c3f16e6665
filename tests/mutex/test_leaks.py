"""Every way out of acquire leaves nothing: no node, no watch, no memory (promise 4).

Any BaseException may land inside acquire (kazoo's Lock leaves its node then), each timed-out wait
may leave a watch, and a parent may be removed between two steps (CURATOR-173, -180). Lost replies
and outages are in `test_recovery`.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from kazoo.exceptions import NoNodeError, NotEmptyError

from distlock import zk_lock
from distlock.session.registry import session_for
from tests.kit.helpers import eventually, spawn_python
from tests.kit.tools import PATIENCE, MakeOwner, Tree, forgets_all

if TYPE_CHECKING:
    from distlock_chaos.server import ZooKeeper


pytestmark = pytest.mark.usefixtures("tree")


# Waits in its main thread, says how that ended, and lives on: its session must not clean up for it.
WAITS_IN_MAIN_THREAD = """
import signal, sys
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2])
from distlock import zk_lock

def soft_limit(number, frame):
    raise SystemExit("a soft time limit")

signal.signal(signal.SIGTERM, soft_limit)
try:
    zk_lock("key").acquire(timeout=None)
except BaseException as error:
    print(type(error).__name__)
sys.stdin.read()
"""


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "SystemExit")],
)
def test_an_exception_from_a_signal_in_a_wait_leaves_no_node(
    tree: Tree, zookeeper: ZooKeeper, number: signal.Signals, name: str
) -> None:
    with spawn_python(WAITS_IN_MAIN_THREAD, zookeeper.hosts, tree.namespace) as process:
        tree.await_line("key", 2)
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stdout.readline() == f"{name}\n"
        tree.await_line("key", 1)
        process.communicate(timeout=PATIENCE)


# An alarm goes off at a random moment of each round, inside acquire, the body or release.
# What is tried in each round is the last argument.
HAMMERED = """
import random, signal, sys
from contextlib import suppress
from tests.kit.tools import await_connection, set_up
set_up(sys.argv[1], sys.argv[2], TIMEOUT=0.05)
from distlock import LockBusy, zk_lease, zk_lock, zk_locked

class SoftLimit(BaseException):
    pass

def soft_limit(number, frame):
    # Before its first line no __exit__ written in Python can do anything (CPython 74174): later
    # then, and later again where that comes while this very handler still stands on that line.
    code = frame.f_code
    before_exit = code.co_name == "__exit__" and frame.f_lineno == code.co_firstlineno
    if before_exit or code is soft_limit.__code__:
        signal.setitimer(signal.ITIMER_REAL, 0.00001)
        return
    raise SoftLimit

chance, longest = random.Random(sys.argv[3]), 0.003
signal.signal(signal.SIGALRM, soft_limit)
await_connection()
with zk_lock("key"):
    pass
hit, entered, kept = 0, 0, 0

def work():
    global entered
    entered += 1

def block():
    with zk_lock("key"):
        work()

def lease():  # with a key of its own, so that each one that stays is seen
    with zk_lease(f"key-{hit}-{entered}", 600):
        work()

tried = {"block": block, "decorated": zk_locked("key")(work), "lease": lease}[sys.argv[4]]
for _ in range(500):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00001, longest))
        with suppress(LockBusy):
            tried()
        signal.setitimer(signal.ITIMER_REAL, 0)
        longest = max(longest * 0.9, 0.0005)
    except SoftLimit:
        hit += 1
        longest = min(longest * 1.1, 0.05)  # so that every second block is hit, on any machine
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if zk_lock("key").held:
        kept += 1
        zk_lock("key").release()
print(hit, entered, kept)
sys.stdin.read()
"""


@pytest.mark.parametrize("tried", ["block", "decorated", "lease"])
def test_an_exception_at_any_moment_leaves_no_node_and_no_hold(
    tree: Tree, zookeeper: ZooKeeper, tried: str
) -> None:
    seed = str(time.time_ns())
    with spawn_python(HAMMERED, zookeeper.hosts, tree.namespace, seed, tried) as process:
        assert process.stdout is not None
        hit, entered, kept = map(int, process.stdout.readline().split())
        assert hit > 20
        assert entered > 20
        assert kept == 0, f"seed {seed}: {kept} of {hit} interrupted went on holding"
        tree.await_line("key", 0)
        leases = f"{tree.namespace}/@leases"
        eventually(lambda: not tree.children(leases), PATIENCE, "no lease that stays")
        process.communicate(timeout=PATIENCE)


def test_a_parent_removed_again_and_again_does_not_disturb_the_lock(
    tree: Tree, make_owner: MakeOwner
) -> None:
    done, removed = threading.Event(), 0

    def remove_parents() -> None:
        nonlocal removed
        while not done.is_set():
            for path in (tree.path("key"), tree.namespace):
                with suppress(NoNodeError, NotEmptyError):
                    tree.client.delete(path)
                    removed += 1

    inside: list[str] = []
    tokens: list[int] = []

    def no_parent_is_left() -> None:
        eventually(lambda: not tree.client.exists(tree.namespace), PATIENCE, "no parents")

    both = threading.Barrier(2, no_parent_is_left, timeout=PATIENCE)

    def use_it(using: str) -> None:
        for _ in range(50):
            both.wait()
            with zk_lock("key", using=using) as hold:
                inside.append(using)
                assert inside == [using]
                tokens.append(hold.token)
                inside.remove(using)

    remover = threading.Thread(target=remove_parents)
    remover.start()
    try:
        users = [make_owner().submit(use_it, using) for using in ("default", "other")]
        for user in users:
            user.result(PATIENCE * 4)
    finally:
        done.set()
        remover.join()
    assert removed >= 50
    assert len(tokens) == 100
    assert tokens == sorted(set(tokens))


def test_the_server_removes_the_parents_of_idle_locks(tree: Tree) -> None:
    for number in range(20):
        with zk_lock(f"key-{number}"):
            pass
    eventually(lambda: not tree.children(tree.namespace), PATIENCE, "no idle parents")
    forgets_all(session_for())
    with zk_lock("key-1"):
        assert len(tree.line("key-1")) == 1
