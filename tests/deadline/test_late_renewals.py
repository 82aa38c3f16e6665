"""A follower answers a late renewal, and fails before it has reported the session to the leader.

The leader expires the session a timeout after the last contact that was reported to it
(`LearnerHandler`, `LeaderZooKeeperServer.submitLearnerRequest`). By then the holder must know.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pytest_django import Settings

from distlock import zk_lock
from distlock.session.registry import close_sessions
from distlock_chaos.server import Server, ZooKeeper
from tests.kit.helpers import spawn_python
from tests.kit.losses import noted, pass_time, said
from tests.kit.tools import PATIENCE, MakeOwner, await_connection

pytestmark = pytest.mark.deep

KEY = "key"
T = 6.0

# Stops itself just after a heartbeat, or at rest, to go on with an acquire. Then it stops its
# server at the answer to the next heartbeat, or at the grant, and checks until the hold is lost.
STOPS = """
import json, os, signal, sys, time
from tests.kit.tools import MakeOwner, set_up
set_up(sys.argv[1], sys.argv[2], SESSION_TIMEOUT=float(sys.argv[5]))
from distlock import LockLost, zk_lock
from distlock.engine.deadline import SessionDeadline

server, acquires = int(sys.argv[3]), sys.argv[4] == "acquire"
renew, beats = SessionDeadline.renew, 0

def stop_myself():
    print("stops", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

def stop_the_server():
    os.kill(server, signal.SIGSTOP)
    print("stopped the server", flush=True)

def count(deadline, *args):
    global beats
    beats += 1
    if beats == 5:
        stop_the_server()
    renew(deadline, *args)
    if beats == 4:  # the acquire and three heartbeats
        stop_myself()

if acquires:
    for _ in range(3):
        with zk_lock("other"):
            pass
    stop_myself()
else:
    SessionDeadline.renew = count
passed = 0.0
try:
    with zk_lock("key") as hold:
        if acquires:
            stop_the_server()
        else:
            print("holds", flush=True)
        while True:
            at = time.monotonic()
            hold.check()
            passed = at
            time.sleep(0.001)
except LockLost:
    print(json.dumps(passed))
sys.stdin.read()
"""


@pytest.fixture
def apart(zookeeper_ensemble: ZooKeeper, settings: Settings) -> Iterator[tuple[Server, str]]:
    """A follower that the holder is connected to; the rival knows only the others."""
    follower = zookeeper_ensemble.followers()[0]
    others = [server.address for server in zookeeper_ensemble.servers if server is not follower]
    namespace = f"/t-{uuid4()}"
    options = {"HOSTS": ",".join(others), "NAMESPACE": namespace, "SESSION_TIMEOUT": T}
    settings.DISTLOCK = {"default": options, "other": options}
    await_connection("other")
    yield follower, namespace
    close_sessions()
    follower.resume()
    zookeeper_ensemble.start()


@pytest.mark.parametrize(("late", "pause"), [("renewal", 0.6 * T), ("acquire", 0.85 * T)])
def test_a_late_answer_is_worth_what_the_leader_has_counted(
    apart: tuple[Server, str], make_owner: MakeOwner, late: str, pause: float
) -> None:
    follower, namespace = apart
    rival, lock = make_owner(), zk_lock(KEY, using="other")
    arguments = (follower.address, namespace, str(follower.pid), late, str(T))
    with spawn_python(STOPS, *arguments) as process:
        if late == "renewal":
            assert said(process) == "holds"
            granted = rival.submit(lock.acquire, timeout=PATIENCE)
        assert said(process) == "stops"
        pass_time(pause)
        process.send_signal(signal.SIGCONT)
        told = said(process)
        if late == "acquire":
            granted = rival.submit(lock.acquire, timeout=PATIENCE)
        when_granted = noted(granted)
        assert granted.result(PATIENCE)
        if told == "stopped the server":  # or else it woke so late that the hold was lost
            told = said(process)
        last_check = json.loads(told)
        assert last_check < when_granted()
        rival.now(lock.release)
        process.kill()
