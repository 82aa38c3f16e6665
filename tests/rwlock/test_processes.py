"""Readers and writers of several processes, with a witness (promise 1)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import spawn_python
from tests.kit.tools import Tree

pytestmark = pytest.mark.usefixtures("tree")

# Writers add to a number in a file without any care: between two steps the file is empty. Readers
# look twice, and so do writers that have become readers.
WITNESSES = """
import sys, threading, time
from pathlib import Path
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2])
from distlock import zk_rwlock

counter, rounds = Path(sys.argv[3]), int(sys.argv[4])
lock, failed = zk_rwlock("key"), []

def look():
    seen = counter.read_text()
    time.sleep(0.002)
    assert seen and seen == counter.read_text()
    return int(seen)

def add():
    number = int(counter.read_text())
    counter.write_text("")
    time.sleep(0.001)
    counter.write_text(str(number + 1))
    return number + 1

def run():
    try:
        for number in range(rounds):
            with lock.read:
                look()
            if number % 2:
                with lock.write:
                    add()
            else:
                with lock.write:
                    written = add()
                    lock.read.acquire()
                assert look() == written
                lock.read.release()
    except BaseException as error:
        failed.append(error)
        raise

threads = [threading.Thread(target=run) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(bool(failed))
"""


def test_readers_see_what_was_written_and_nothing_in_between(
    tree: Tree, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    counter, rounds = tmp_path / "counter", 20
    counter.write_text("0")
    arguments = (zookeeper.hosts, tree.namespace, str(counter), str(rounds))
    with ExitStack() as stack:
        processes = [stack.enter_context(spawn_python(WITNESSES, *arguments)) for _ in range(3)]
        for process in processes:
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
    assert int(counter.read_text()) == 3 * 2 * rounds
