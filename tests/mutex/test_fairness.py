"""The line is strictly first come, first served, and a release wakes one waiter (promise 2).

Each waiter has an event of its own (CURATOR-716). The successor of one who gave up in the middle
looks again, and does not believe that it holds.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from distlock import zk_lock
from tests.kit.helpers import eventually, spawn_python
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, await_connection

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pytest_django import Settings

    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("tree")

# Reads names; for each, a thread that waits for the lock, says its name, and releases.
WAITERS = """
import sys, threading
from tests.kit.tools import MakeOwner, await_connection, set_up
set_up(sys.argv[1], sys.argv[2])
from distlock import zk_lock

def wait(name):
    with zk_lock("key"):
        sys.stdout.write(name + "\\n")
        with open(sys.argv[3], "a") as history:
            history.write(name + "\\n")

await_connection()
print("ready")
threads = []
for line in sys.stdin:
    threads.append(threading.Thread(target=wait, args=[line.strip()]))
    threads[-1].start()
for thread in threads:
    thread.join()
"""


def test_threads_of_two_processes_are_served_in_the_order_in_which_they_came(
    tree: Tree, zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> None:
    history = tmp_path_factory.mktemp("fairness") / "history"
    arguments = (zookeeper.hosts, tree.namespace, str(history))
    names = [f"{process}{thread}" for thread in range(4) for process in "ab"]
    names[2:4] = reversed(names[2:4])  # not simply in turn
    with spawn_python(WAITERS, *arguments) as a, spawn_python(WAITERS, *arguments) as b:
        pipes = {}
        for name, process in {"a": a, "b": b}.items():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            pipes[name] = process.stdin
        with zk_lock("key"):
            for place, name in enumerate(names, start=2):
                pipe = pipes[name[0]]
                assert pipe is not None
                pipe.write(f"{name}\n")
                pipe.flush()
                tree.await_line("key", place)
        for process in (a, b):
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, errors
    assert history.read_text().split() == names


def line_up(
    tree: Tree, make_owner: MakeOwner, aliases: list[str]
) -> list[tuple[Owner, Future[bool]]]:
    """Let a new owner of each alias wait, one behind the other."""
    waiters = []
    for using in aliases:
        owner, length = make_owner(), len(tree.line("key"))
        waiters.append((owner, owner.submit(zk_lock("key", using=using).acquire, timeout=PATIENCE)))
        tree.await_line("key", length + 1)
    return waiters


def test_a_release_sends_something_to_one_waiting_client_only(
    tree: Tree, two_sessions: Settings, make_owner: MakeOwner
) -> None:
    default = {**two_sessions.DISTLOCK["default"], "SESSION_TIMEOUT": 20}  # no ping in between
    aliases = ["default", *(f"client-{number}" for number in range(5))]
    two_sessions.DISTLOCK = dict.fromkeys(aliases, default)
    with ExitStack() as stack:
        sessions = {using: await_connection(using).id for using in aliases[1:]}
        stack.enter_context(zk_lock("key"))
        waiters = line_up(tree, make_owner, aliases[1:])
        eventually(lambda: len(tree.watches()) == len(waiters))
        before = packets(tree)
        stack.close()
        assert waiters[0][1].result(PATIENCE)
        after = packets(tree)
    quiet = [using for using, sid in sessions.items() if before[sid] == after[sid]]
    assert quiet == aliases[2:]
    for using, (owner, granted) in zip(aliases[1:], waiters, strict=True):
        assert granted.result(PATIENCE)
        owner.now(zk_lock("key", using=using).release)


def packets(tree: Tree) -> dict[int, int]:
    """How many packets the server has sent to each session."""
    connections = tree.client.command(b"cons")
    return {
        int(sid, 16): int(sent)
        for sent, sid in re.findall(r"sent=(\d+),sid=(0x[0-9a-f]+)", connections)
    }
