"""A site moves from redis-py's lock to ours in a rolling deploy, and back, without an overlap."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import spawn_python
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, Tree

pytestmark = [pytest.mark.deep, pytest.mark.engines("zookeeper", "redis")]

#: The processes of one release.
PROCESSES = 2
#: How often a new process has had the lock before an old one is stopped.
TURNS = 10

# Each turn takes the lock as its release does, and says so. A deploy ends it with SIGTERM.
SITE = """
import signal, sys
from pathlib import Path
from types import ModuleType
from redis import Redis
from tests.kit.tools import set_up

hosts, namespace, url, folder, release = sys.argv[1:]
client = Redis.from_url(url)
shop = sys.modules["shop"] = ModuleType("shop")
shop.old_lock = lambda key: client.lock(f"lock:{key}", timeout=60, thread_local=False)
set_up(hosts, namespace, BESIDE="shop.old_lock" if release == "both" else None)

from distlock import zk_locked
from tests.interop.tools import Witness

witness = Witness(Path(folder), "mutex")
overlaps, stopped = 0, []

def turn(key):
    global overlaps
    overlaps += witness.is_crowded()
    print("turn")

def old_turn(key):
    with client.lock(f"lock:{key}", timeout=60):
        turn(key)

one = old_turn if release == "old" else zk_locked("<key>")(turn)
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
while not stopped:
    one("key")
print(overlaps)
"""


@contextmanager
def site(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of a release, once it has had its turns."""
    with spawn_python(SITE, *arguments) as process:
        assert process.stdout is not None
        for _ in range(TURNS):
            assert process.stdout.readline() == "turn\n", process.communicate()[1]
        yield process


def stop(process: subprocess.Popen[str]) -> int:
    """Stop a process, and return how many overlaps it has seen."""
    process.terminate()
    told, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return int(told.splitlines()[-1])


@pytest.mark.parametrize(
    ("releases", "overlaps"),
    [(("old", "both", "new", "both", "old"), False), (("old", "new"), True)],
    ids=["in steps", "in one"],
)
def test_two_releases_side_by_side_never_overlap_if_one_of_them_takes_both_locks(
    tree: Tree,
    zookeeper: ZooKeeper,
    redis: Redis,
    tmp_path: Path,
    *,
    releases: tuple[str, ...],
    overlaps: bool,
) -> None:
    start = partial(site, zookeeper.hosts, tree.namespace, redis.new_database(), str(tmp_path))
    seen = 0
    with ExitStack() as stack:
        running = [stack.enter_context(start(releases[0])) for _ in range(PROCESSES)]
        for _, release in pairwise(releases):
            for number in range(PROCESSES):
                replaced = running[number]
                running[number] = stack.enter_context(start(release))
                seen += stop(replaced)
        seen += sum(map(stop, running))
    assert bool(seen) is overlaps
