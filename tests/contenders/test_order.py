"""Strictly first come, first served over threads and processes, and one at a time (promises 1, 2).

Threads of one process hand the lock on among themselves, and all of them are in one line with those
of other processes.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from distlock import zk_lock
from distlock.session.registry import session_for
from tests.contenders.tools import KEY, Waiter, await_seats
from tests.kit.engines import first_then_deep
from tests.kit.helpers import spawn_python
from tests.kit.tools import PATIENCE, MakeOwner, Tree, forgets_all, settle

if TYPE_CHECKING:
    from pathlib import Path

    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("patient", "tree")


@pytest.mark.parametrize("aliases", ["ddooddodo", "dodododo", "dddd"])
def test_who_comes_first_is_served_first(tree: Tree, make_owner: MakeOwner, aliases: str) -> None:
    names = {"d": "default", "o": "other"}
    with zk_lock(KEY, using="other"):
        waiters = [Waiter(tree, make_owner, names[alias]) for alias in aliases]
    for number, waiter in enumerate(waiters):
        assert waiter.granted.result(PATIENCE)
        assert not any(later.granted.done() for later in waiters[number + 1 :])
        waiter.release()
    tree.await_line(KEY, 0)
    tree.await_watches()


def test_sixteen_threads_of_two_sessions_are_in_one_at_a_time(
    tree: Tree, make_owner: MakeOwner
) -> None:
    rounds, inside = 12, []
    served: Counter[int] = Counter()
    together = threading.Barrier(16, timeout=PATIENCE)

    def contend(number: int) -> None:
        lock = zk_lock(
            KEY,
            using=("default", "other")[number % 2],
            handoff=(0, 0, 2, 5)[number // 2 % 4],
            timeout=PATIENCE * 2,
        )
        together.wait()
        for _ in range(rounds):
            with lock as hold:
                inside.append(number)
                hold.check()
                assert inside == [number]
                served[number] += 1
                inside.remove(number)

    threads = [make_owner().submit(contend, number) for number in range(16)]
    for thread in threads:
        thread.result(PATIENCE * 4)
    assert set(served.values()) == {rounds}
    tree.await_line(KEY, 0)
    tree.await_watches()
    for using in ("default", "other"):
        await_seats(tree, 0, using)
        forgets_all(session_for(using))
        settle(session_for(using))
        assert not session_for(using).local_nodes


# Adds to a number in a file, without any care, and tells the history of its holds.
COUNTS = """
import json, os, sys, threading, time
from pathlib import Path
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=20)
from distlock import zk_lock

counter, rounds = Path(sys.argv[3]), int(sys.argv[5])
history = os.open(sys.argv[4], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def count(handoff):
    for _ in range(rounds):
        with zk_lock("key", handoff=handoff) as hold:
            acquired = time.monotonic_ns()
            number = int(counter.read_text())
            counter.write_text(str(number + 1))
            said = {"token": hold.token, "acquired": acquired, "released": time.monotonic_ns()}
            os.write(history, json.dumps(said).encode() + b"\\n")

threads = [threading.Thread(target=count, args=[int(handoff)]) for handoff in sys.argv[6:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("handoffs", first_then_deep(["0252", "0000", "4444"]))
def test_sixteen_threads_of_four_processes_are_in_one_at_a_time(
    tree: Tree, zookeeper: ZooKeeper, tmp_path: Path, handoffs: str
) -> None:
    counter, history, rounds = tmp_path / "counter", tmp_path / "history", 10
    counter.write_text("0")
    arguments = (zookeeper.hosts, tree.namespace, str(counter), str(history), str(rounds))
    with ExitStack() as stack:
        processes = [
            stack.enter_context(spawn_python(COUNTS, *arguments, *handoffs)) for _ in range(4)
        ]
        for process in processes:
            _, errors = process.communicate(timeout=90)
            assert process.returncode == 0, errors
    assert int(counter.read_text()) == 16 * rounds
    holds = [json.loads(line) for line in history.read_text().splitlines()]
    holds.sort(key=lambda hold: hold["acquired"])
    for hold, following in itertools.pairwise(holds):
        assert hold["acquired"] < hold["released"] < following["acquired"]
        assert hold["token"] <= following["token"]
    if handoffs == "0000":
        assert len({hold["token"] for hold in holds}) == len(holds)
