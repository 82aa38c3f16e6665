"""``multiprocessing`` with fork and with spawn, under a parent that holds (promise 8)."""

from __future__ import annotations

import pytest

from distlock import zk_lock
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
