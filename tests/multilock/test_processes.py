"""Two who take the same locks in opposite order never wait for each other for ever (deadlock)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import spawn_python
from tests.kit.tools import Tree

pytestmark = pytest.mark.usefixtures("tree")

# Moves one piece from one number to another, without any care; each process in its own direction.
MOVES = """
import sys, threading, time
from pathlib import Path
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2])
from distlock import zk_multilock

folder, keys, rounds = Path(sys.argv[3]), sys.argv[4].split(","), int(sys.argv[5])
failed = []

def add(key, number):
    file = folder / key
    before = int(file.read_text())
    file.write_text("")
    time.sleep(0.001)
    file.write_text(str(before + number))

def move():
    try:
        for _ in range(rounds):
            with zk_multilock(*keys, timeout=40):
                add(keys[0], -1)
                add(keys[1], 1)
                assert sum(int((folder / key).read_text()) for key in keys) == 1000
    except BaseException as error:
        failed.append(error)
        raise

threads = [threading.Thread(target=move) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(bool(failed))
"""


def test_processes_that_want_the_same_keys_in_opposite_order_all_get_through(
    tree: Tree, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    for key in "ab":
        (tmp_path / key).write_text("500")
    arguments = (zookeeper.hosts, tree.namespace, str(tmp_path))
    with ExitStack() as stack:
        processes = [
            stack.enter_context(spawn_python(MOVES, *arguments, keys, str(rounds)))
            for keys, rounds in (("a,b", 25), ("b,a", 20))
        ]
        for process in processes:
            _, errors = process.communicate(timeout=90)
            assert process.returncode == 0, errors
    moved = 2 * (25 - 20)
    assert [int((tmp_path / key).read_text()) for key in "ab"] == [500 - moved, 500 + moved]
