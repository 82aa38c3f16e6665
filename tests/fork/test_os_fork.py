"""``os.fork`` and ``multiprocessing`` while the parent holds, waits or connects (promise 8).

In a child of plain kazoo every call hangs, and everything seems held (kazoo 519, 554, 628).
gunicorn's ``--preload`` is in tests/servers.
"""

from __future__ import annotations

import pytest

from distlock import zk_lock
from distlock.conf import configuration
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.fork.tools import SLACK, heard, program
from tests.fork.workers import STARTS_WORKERS
from tests.kit.losses import tell
from tests.kit.tools import PATIENCE, Tree

KEY = "key"

pytestmark = [
    pytest.mark.deep,
    pytest.mark.usefixtures("tree"),
    pytest.mark.engines("zookeeper", "redis"),
]

# The child leaves the block that its parent has entered.
LEAVES_AN_INHERITED_BLOCK = """
import ctypes
from distlock.keys.znodes import protected_prefix
from tests.fork.tools import others_sleep
from tests.kit.helpers import eventually
def child():
    found = {}
    with timed(found, "leave"):  # first: nothing has looked for a fork yet
        lock.__exit__(None, None, None)
    found |= {"lost": hold.lost, "valid for": hold.valid_for(), "held": lock.held}
    for step in ("check", "verify"):
        with timed(found, step):
            getattr(hold, step)()
    with timed(found, "own"), zk_lock("another", timeout=5) as own:
        own.check()
        own.verify()
        found["own session"] = session_for().id != parents
        found["name"] = own.path.rpartition("/")[2]
    return found

# uWSGI's way, in which Python calls no hook.
os.fork = ctypes.PyDLL(None).fork if sys.argv[3] == "unnoticed" else os.fork
lock = zk_lock("key")
hold = lock.__enter__()
parents = await_connection().id
eventually(others_sleep)
found = in_a_child(child)
tell({**found, "name": "own" if protected_prefix() not in found["name"] else "the parent's next"})
hold.check()
hold.verify()
tell({"lost": hold.lost, "session kept": session_for().id == parents})
hear()
lock.__exit__(None, None, None)
"""


@pytest.mark.parametrize("way", ["noticed", "unnoticed"])
def test_a_child_does_not_believe_in_the_hold_of_its_parent_and_cannot_release_it(
    tree: Tree, zookeeper: ZooKeeper, way: str
) -> None:
    arguments = zookeeper.hosts, tree.namespace, way
    with program(LEAVES_AN_INHERITED_BLOCK, *arguments) as process:
        found = heard(process)
        taken = {name: found.pop(name) for name in list(found) if name.endswith(" took")}
        assert found == {
            "lost": True,
            "valid for": 0.0,
            "held": False,
            "check": "LockLost",
            "verify": "LockLost",
            "leave": "NotOwner",
            "own": "done",
            "own session": True,
            "name": "own",
            "status": 0,
        }
        assert taken["check took"] + taken["verify took"] + taken["leave took"] < SLACK
        assert heard(process) == {"lost": False, "session kept": True}
        assert len(tree.line(KEY)) == 1
        assert not zk_lock(KEY).acquire(timeout=0)
        tell(process)
        tree.await_line(KEY, 0)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


# A hook that was registered before distlock was imported takes a lock in the child.
TAKES_IN_A_HOOK = """
lock, parent = zk_lock("key"), os.getpid()
def child():
    found = {"held": lock.held, "another": zk_lock("key").acquire(timeout=0)}
    lock.release()
    lock.release()
    return {**found, "after": lock.held}

await_connection()
os.environ["IN_CHILD"] = "take"
tell(in_a_child(child))
"""
BEFORE_DISTLOCK = """
import os
def hook():
    if os.environ.get("IN_CHILD") == "take":
        from distlock import zk_lock
        assert zk_lock("key").acquire(timeout=20)
os.register_at_fork(after_in_child=hook)
"""


def test_a_lock_that_an_earlier_hook_takes_in_the_child_is_the_childs(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with program(TAKES_IN_A_HOOK, zookeeper.hosts, tree.namespace, head=BEFORE_DISTLOCK) as one:
        assert heard(one) == {"held": True, "another": True, "after": False, "status": 0}
        one.communicate(timeout=PATIENCE)
        assert one.returncode == 0
    tree.await_line(KEY, 0)


# Forks while its session connects, or has no connection, in vain.
FORKS_WHILE_CONNECTING = """
def use(name):
    with timed(found, name), zk_lock("key", timeout=0.7):
        pass

def child():
    use("child")
    return found

found = {}
if sys.argv[3] == "connected before":
    await_connection()
tell("ready")
hear()
session_for()
said = in_a_child(child)
use("parent")
tell({**said, **found})
hear()
await_connection()  # or the lock is refused at once
with zk_lock("key", timeout=15):
    tell(in_a_child(lambda: {"free": zk_lock("key").acquire(timeout=0)}))
"""


@pytest.mark.parametrize("before", ["connected before", "never connected"])
@pytest.mark.parametrize("fault", [TcpProxy.cut, TcpProxy.black_hole])
def test_a_child_of_a_parent_without_a_connection_is_told_so_in_time(
    tree: Tree, broken_link: TcpProxy, before: str, fault: object
) -> None:
    assert callable(fault)
    arguments = configuration().hosts, tree.namespace, before
    with program(FORKS_WHILE_CONNECTING, *arguments, as_shipped=True) as process:
        assert heard(process) == "ready"
        fault(broken_link)
        tell(process)
        found = heard(process)
        for who in ("child", "parent"):
            assert found[who] == "LockUnavailable"
            assert found[f"{who} took"] < 0.7 + SLACK
        assert found["status"] == 0
        broken_link.pass_through()
        tell(process)
        assert heard(process) == {"free": False, "status": 0}
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


# --- multiprocessing -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_start_clean_and_leave_the_hold_of_their_parent_alone(
    tree: Tree, zookeeper: ZooKeeper, method: str
) -> None:
    with program(STARTS_WORKERS, zookeeper.hosts, tree.namespace, method) as process:
        told = heard(process)
        assert told["exits"] == [0, 0, 0]
        for found in told["found"]:
            assert found["held"] is False
            assert found["busy"] == "LockBusy"
            assert found["busy took"] < 0.3 + 2 * SLACK  # with the question who the holder is
            assert found["shared"] == "done"
        assert len({found["token"] for found in told["found"]}) == 3
        tree.await_line(KEY, 1)
        assert not zk_lock(KEY).acquire(timeout=0)
        tell(process)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        tree.await_line(KEY, 0)
        with zk_lock("shared", timeout=5):  # multiprocessing's children do not say good-bye
            assert len(tree.line("shared")) == 1
