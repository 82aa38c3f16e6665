"""Real processes that wait for each other."""

from __future__ import annotations

import json
from contextlib import ExitStack

from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import spawn_python
from tests.kit.losses import said, tell
from tests.kit.tools import Tree

AFTER = 2

PROCESS = """
import json, sys
from tests.kit.tools import set_up
from tests.kit.stopwatch import Stopwatch
hosts, namespace, after, held, wanted = sys.argv[1:]
set_up(hosts, namespace, SESSION_TIMEOUT=20, CONNECT_TIMEOUT=20, DEADLOCK_AFTER=float(after))
from distlock import DeadlockDetected, zk_lock
with zk_lock(held):
    print("holds", flush=True)
    sys.stdin.readline()
    with Stopwatch() as watch:
        try:
            zk_lock(wanted, timeout=60).acquire()
            outcome = "has both"
        except DeadlockDetected as error:
            outcome = [str(error), *[one.pid for one in error.cycle]]
    print(json.dumps([outcome, watch.taken]), flush=True)
    if outcome == "has both":
        zk_lock(wanted).release()
sys.stdin.readline()
"""


def test_three_processes_get_out_of_it_in_time(tree_of_waits: Tree, zookeeper: ZooKeeper) -> None:
    keys = ["a", "b", "c"]
    where = (zookeeper.hosts, tree_of_waits.namespace, str(AFTER))
    with ExitStack() as stack:
        processes = [
            stack.enter_context(spawn_python(PROCESS, *where, key, keys[place - 2]))
            for place, key in enumerate(keys)
        ]
        for process in processes:
            assert said(process) == "holds"
        for process, wanted in zip(processes, "bca", strict=True):
            tell(process)
            tree_of_waits.await_line(wanted, 2)
        (words, *pids), taken = json.loads(said(processes[2]))
        assert "waits for 'a', held by" in words
        assert sorted(pids) == sorted(process.pid for process in processes)
        assert taken <= AFTER + 1  # since it closed the circle, which is the promise
        assert [json.loads(said(process))[0] for process in processes[:2]] == ["has both"] * 2
        for process in processes:
            tell(process)
            assert process.wait(20) == 0
