"""What `release` sends is in the kernel when it returns, unless other requests wait to be sent.

A forked child that released its lock and called ``os._exit(0)`` left it behind until the session
expired, since the connection thread had not sent the delete yet.
"""

from __future__ import annotations

import pytest

from distlock_chaos.server import ZooKeeper
from tests.fork.tools import heard, program
from tests.kit.engines import first_then_deep
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Tree

pytestmark = pytest.mark.engines("zookeeper", "redis", postgresql=False)

ROUNDS = 5
#: How soon the lock is free, in seconds, and when it would be free by itself.
SOON, SESSION_TIMEOUT = 5, 15

RELEASES_AND_EXITS = """
from distlock import zk_leader, zk_rwlock, zk_semaphore, zk_semaphore_mutex
lock = {
    "mutex": lambda: zk_lock("key"),
    "unfair": lambda: zk_lock("key", fair=False),
    "read": lambda: zk_rwlock("key").read,
    "write": lambda: zk_rwlock("key").write,
    "semaphore": lambda: zk_semaphore("key", 1),
    "semaphore mutex": lambda: zk_semaphore_mutex("key"),
    "leader": lambda: zk_leader("key"),
}[sys.argv[3]]()
for _ in range(int(sys.argv[4])):
    pid = os.fork()
    if not pid:
        lock.acquire()
        lock.participants()  # what the acquire has left to send goes out before its answer
        sys.setswitchinterval(60)  # the connection thread gets no turn that it is not given
        lock.release()
        os._exit(0)
    tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
hear()
"""


@pytest.mark.parametrize(
    "recipe",
    first_then_deep(["mutex", "unfair", "read", "write", "semaphore", "semaphore mutex", "leader"]),
)
def test_a_child_that_ends_right_after_its_release_leaves_nothing(
    tree: Tree, zookeeper: ZooKeeper, recipe: str
) -> None:
    name = "%leader:key" if recipe == "leader" else "key"
    below = f"{tree.namespace}/{name}" + ("/leases" if recipe.startswith("semaphore") else "")
    with program(
        RELEASES_AND_EXITS,
        zookeeper.hosts,
        tree.namespace,
        recipe,
        str(ROUNDS),
        session_timeout=SESSION_TIMEOUT,
    ) as process:
        for _ in range(ROUNDS):
            assert heard(process) == 0
            eventually(lambda: not tree.children(below), SOON, f"nothing in {below}")
        process.communicate("\n", timeout=PATIENCE)
