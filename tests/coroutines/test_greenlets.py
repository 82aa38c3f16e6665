"""Under gevent the waiters are greenlets: none of them blocks the others."""

from __future__ import annotations

import pytest

from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import spawn_python
from tests.kit.tools import PATIENCE, Tree

CROWD = """
from gevent import monkey; monkey.patch_all()
import sys, gevent
from tests.kit.tools import set_up
set_up(*sys.argv[1:], SESSION_TIMEOUT=20, CONNECT_TIMEOUT=20)
from distlock import zk_lock

ticks, inside, served = 0, 0, 0

def tick():
    global ticks
    while True:
        ticks += 1
        gevent.sleep(0.001)

def buy():
    global inside, served
    with zk_lock("key", timeout=None), zk_lock("key"):
        inside += 1
        assert inside == 1
        gevent.sleep(0)
        inside -= 1
        served += 1

gevent.spawn(tick)
with zk_lock("key"):
    crowd = [gevent.spawn(buy) for _ in range(100)]
    before = ticks
    while ticks < before + 20:
        gevent.sleep(0.001)
    left = gevent.spawn(buy)
    gevent.sleep(0.01)
    left.kill()
gevent.joinall(crowd, raise_error=True)
print(served, flush=True)
"""

RECIPES = """
from gevent import monkey; monkey.patch_all()
import sys, gevent
from tests.kit.tools import set_up
set_up(*sys.argv[1:], SESSION_TIMEOUT=20, CONNECT_TIMEOUT=20)
from distlock import kazoo_client, zk_lock

zk, path = kazoo_client(), sys.argv[2] + "-recipes"
zk.ensure_path(path)

@zk.ChildrenWatch(path)
def watch(names):
    with zk_lock("key"):  # a callback may block
        gevent.sleep(0.01)

def consume():
    queue = zk.LockingQueue(path + "/queue")
    item = queue.get()
    queue.consume()
    return item

def count():
    zk.Counter(path + "/counter").__add__(1)

consumers = [gevent.spawn(consume) for _ in range(10)]
zk.LockingQueue(path + "/queue").put_all([b"%d" % number for number in range(10)])
counting = [gevent.spawn(count) for _ in range(10)]
gevent.joinall(consumers + counting, timeout=20, raise_error=True)
print(sorted(one.value for one in consumers) == [b"%d" % number for number in range(10)])
print(zk.Counter(path + "/counter").value)
zk.delete(path, recursive=True)
"""

PATCHED_LATE = """
from contextvars import copy_context
import django; django.setup()
from distlock.owner.owner import current
from gevent import monkey; monkey.patch_all()
import gevent

mine, context = current(), copy_context()
assert current() is mine
print(gevent.spawn(context.run, current).get() is mine)
"""


def test_greenlets_wait_beside_each_other(tree: Tree, zookeeper: ZooKeeper) -> None:
    pytest.importorskip("gevent")
    with spawn_python(CROWD, zookeeper.hosts, tree.namespace) as process:
        said, errors = process.communicate(timeout=PATIENCE * 3)
    assert said == "100\n", errors
    tree.await_line("key", 0)


def test_kazoos_recipes_wait_in_greenlets(tree: Tree, zookeeper: ZooKeeper) -> None:
    pytest.importorskip("gevent")
    with spawn_python(RECIPES, zookeeper.hosts, tree.namespace) as process:
        said, errors = process.communicate(timeout=PATIENCE * 3)
    assert said == "True\n10\n", errors


def test_a_greenlet_is_an_owner_of_its_own_even_if_threads_were_patched_late() -> None:
    pytest.importorskip("gevent")
    with spawn_python(PATCHED_LATE) as process:
        said, errors = process.communicate(timeout=PATIENCE * 3)
    assert said == "False\n", errors
