"""A holder's process is stopped and goes on: past its lease it may not believe in its hold.

After SIGCONT code ran as holder for tens of thousands of turns before the client noticed
(CURATOR-206): only a comparison of clocks in the check itself catches it.
"""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from distlock import zk_lock
from tests.kit.helpers import spawn_python
from tests.kit.losses import pass_time, said, tell
from tests.kit.tools import PATIENCE, MakeOwner, Tree

if TYPE_CHECKING:
    from distlock_chaos.server import ZooKeeper

KEY = "key"

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("tree")]

# Stops itself while its main thread runs, so that this thread is the first to run again and kazoo's
# cannot have noticed anything before the first check.
WAKES_AND_CHECKS = """
import json, os, signal, sys
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=4)
from distlock import LockLost, zk_lock
from distlock.session.registry import session_for
passed, session = 0, session_for()
try:
    with zk_lock("key") as hold:
        print("held")
        sys.stdin.readline()
        sys.setswitchinterval(1000)
        os.kill(os.getpid(), signal.SIGSTOP)
        connected = session.connected
        for _ in range(20_000):
            try:
                hold.check()
                passed += 1
            except LockLost:
                pass
        said = {"kazoo's belief": connected, "passed": passed, "valid for": hold.valid_for()}
        sys.setswitchinterval(0.005)
except LockLost:
    said["left"] = "LockLost"
print(json.dumps(said))
sys.stdin.read()
"""


def test_the_first_check_after_a_stop_beyond_the_lease_raises(
    tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    rival, rivals = make_owner(), zk_lock(KEY, using="other")
    with spawn_python(WAKES_AND_CHECKS, zookeeper.hosts, tree.namespace) as process:
        assert said(process) == "held"
        granted = rival.submit(rivals.acquire, timeout=PATIENCE)
        tree.await_line(KEY, 2)
        tell(process)
        assert granted.result(PATIENCE)  # the rival holds while the other one wakes
        process.send_signal(signal.SIGCONT)
        assert json.loads(said(process)) == {
            "kazoo's belief": True,
            "passed": 0,
            "valid for": 0.0,
            "left": "LockLost",
        }
        rival.now(rivals.release)
        process.communicate(timeout=PATIENCE)


# Checks without a pause from before the stop until after it, and counts what passes after a gap as
# long as the lease: no check may, however the gap came about.
SPINS = """
import json, sys, threading, time
from tests.kit.tools import MakeOwner, set_up
T = float(sys.argv[3])
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=T)
from distlock import LockLost, zk_lock
from distlock.engine.deadline import now

enough = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), enough.set()), daemon=True).start()
lock = zk_lock("key")
hold = lock.__enter__()
before, passed, refused, slept = now(), 0, 0, 0.0
print("held")
last = False
while not last:
    last, turn = enough.is_set(), now()  # one more turn after the order
    slept, before = max(slept, turn - before), turn
    try:
        hold.check()
        passed += slept > T * 2 / 3
    except LockLost:
        refused += 1
print(json.dumps({"passed": passed, "refused": refused, "slept": slept, "lost": hold.lost}))
sys.stdin.readline()
if not hold.lost:
    hold.verify()
    lock.release()
print("done")
sys.stdin.read()
"""


def test_no_check_passes_after_a_stop_that_the_rival_has_used(
    tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    rival, rivals = make_owner(), zk_lock(KEY, using="other")
    with spawn_python(SPINS, zookeeper.hosts, tree.namespace, "4") as process:
        assert said(process) == "held"
        granted = rival.submit(rivals.acquire, timeout=PATIENCE)
        tree.await_line(KEY, 2)
        process.send_signal(signal.SIGSTOP)
        assert granted.result(PATIENCE)
        process.send_signal(signal.SIGCONT)
        tell(process)
        told = json.loads(said(process))
        assert told["slept"] > 4 * 2 / 3
        assert told["lost"]
        assert told["passed"] == 0
        tell(process)
        assert said(process) == "done"
        rival.now(rivals.release)
        process.communicate(timeout=PATIENCE)


def test_a_stop_shorter_than_the_lease_keeps_the_hold(
    tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    rival, rivals = make_owner(), zk_lock(KEY, using="other")
    with spawn_python(SPINS, zookeeper.hosts, tree.namespace, "12") as process:
        assert said(process) == "held"
        granted = rival.submit(rivals.acquire, timeout=PATIENCE)
        tree.await_line(KEY, 2)
        process.send_signal(signal.SIGSTOP)
        pass_time(1)
        process.send_signal(signal.SIGCONT)
        tell(process)
        told = json.loads(said(process))
        assert told["slept"] > 0.7
        assert not told["lost"]
        assert told["refused"] == 0
        assert not granted.done()
        tell(process)
        assert said(process) == "done"
        assert granted.result(PATIENCE)
        rival.now(rivals.release)
        process.communicate(timeout=PATIENCE)


# Is stopped between the grant and the return of acquire.
STOPPED_WITHIN_ACQUIRE = """
import os, signal, sys
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=4)
from distlock import LockUnavailable, zk_lock
from distlock.contenders.waiting import Attempt
outcome = Attempt.outcome

def stopped(attempt):
    assert attempt.contender.granted
    sys.setswitchinterval(1000)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        return outcome(attempt)
    finally:
        sys.setswitchinterval(0.005)

Attempt.outcome = stopped
try:
    print(zk_lock("key").acquire(timeout=30))
except LockUnavailable:
    print("LockUnavailable")
print(zk_lock("key").held)
sys.stdin.read()
"""


def test_an_acquire_that_was_stopped_past_its_lease_grants_nothing(
    tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    rival, rivals = make_owner(), zk_lock(KEY, using="other")
    with spawn_python(STOPPED_WITHIN_ACQUIRE, zookeeper.hosts, tree.namespace) as process:
        stale = tree.await_line(KEY, 1)
        granted = rival.submit(rivals.acquire, timeout=PATIENCE)
        assert granted.result(PATIENCE)
        process.send_signal(signal.SIGCONT)
        assert said(process) == "LockUnavailable"
        assert said(process) == "False"
        assert tree.await_line(KEY, 1) != stale  # the rival's, and no other
        rival.now(rivals.release)
        process.communicate(timeout=PATIENCE)
