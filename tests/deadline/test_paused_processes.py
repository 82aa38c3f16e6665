"""A holder's process is stopped and goes on: past its lease it may not believe in its hold.

After SIGCONT code ran as holder for tens of thousands of turns before the client noticed
(CURATOR-206): only a comparison of clocks in the check itself catches it.
"""

from __future__ import annotations

import json
import signal

import pytest

from distlock import zk_lock
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import spawn_python
from tests.kit.losses import said, tell
from tests.kit.tools import PATIENCE, MakeOwner, Tree

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
