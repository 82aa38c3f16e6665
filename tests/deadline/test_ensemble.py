"""Three servers lose their leader, their quorum, or one after the other: every call ends in time.

Calls are bounded (CURATOR-599: no bound for a request), and a new predecessor starts no time anew.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from distlock import LockBusy, LockLost, LockUnavailable, zk_lock
from distlock.session.registry import close_sessions, session_for
from tests.kit.helpers import eventually, raw_client
from tests.kit.stopwatch import Stopwatch
from tests.kit.tools import OVERRUN, PATIENCE, MakeOwner, Tree, await_connection, within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.deep

KEY = "key"
#: Long enough for an election on a busy machine.
LONG = 30.0


@pytest.fixture(autouse=True)
def _on_three_servers(
    zookeeper_ensemble: ZooKeeper, settings: Settings, namespace: str
) -> Iterator[None]:
    default = {"HOSTS": zookeeper_ensemble.hosts, "NAMESPACE": namespace, "SESSION_TIMEOUT": 15}
    settings.DISTLOCK = {"default": default, "other": default}
    yield
    zookeeper_ensemble.start()
    close_sessions()


@contextmanager
def looked_at(zookeeper: ZooKeeper, namespace: str) -> Iterator[Tree]:
    """The tree as others see it, once all servers are back; nothing may be left in it."""
    zookeeper.start()
    with raw_client(zookeeper.hosts) as client:
        tree = Tree(client, namespace)
        yield tree
        eventually(lambda: not tree.lock_nodes(), PATIENCE, "a tree without lock nodes")


def test_a_waiter_is_granted_over_the_death_of_the_leader(
    zookeeper_ensemble: ZooKeeper, make_owner: MakeOwner, namespace: str
) -> None:
    waiter, lock = make_owner(), zk_lock(KEY)
    with raw_client(zookeeper_ensemble.hosts) as client:
        lock.acquire()
        granted = waiter.submit(zk_lock(KEY, using="other").acquire, timeout=LONG)
        Tree(client, namespace).await_line(KEY, 2)
    zookeeper_ensemble.leader().kill()
    zookeeper_ensemble.leader()
    lock.release()
    assert granted.result(LONG)
    waiter.now(zk_lock(KEY, using="other").release)
    with looked_at(zookeeper_ensemble, namespace) as tree:
        tree.await_line(KEY, 0)


def test_without_a_quorum_each_call_ends_in_time_and_afterwards_it_is_as_before(
    zookeeper_ensemble: ZooKeeper, make_owner: MakeOwner, namespace: str
) -> None:
    held, waits, tries = zk_lock(KEY), make_owner(), make_owner()
    held.acquire()
    await_connection("other")

    def wait() -> None:
        with within(5 + OVERRUN), pytest.raises(LockUnavailable):
            zk_lock(KEY, using="other").acquire(timeout=5)

    with raw_client(zookeeper_ensemble.hosts) as client:
        waiting = waits.submit(wait)
        Tree(client, namespace).await_line(KEY, 2)
    for server in zookeeper_ensemble.followers():
        server.kill()
    waiting.result(LONG)
    with within(1 + OVERRUN), pytest.raises(LockUnavailable):
        tries.now(zk_lock("free").acquire, timeout=1)
    with within(OVERRUN), pytest.raises(LockUnavailable):
        tries.now(zk_lock("free").acquire, timeout=0)
    with within(OVERRUN):
        held.release()
    again = tries.submit(zk_lock(KEY, timeout=LONG).acquire)
    with looked_at(zookeeper_ensemble, namespace) as tree:
        try:
            assert again.result(LONG)
        except LockUnavailable:  # no connection within CONNECT_TIMEOUT: an election takes its time
            await_connection()
            assert tries.now(zk_lock(KEY).acquire)
        tree.await_line(KEY, 1)
        tries.now(zk_lock(KEY).release)


def test_a_rolling_restart_costs_no_call_more_than_its_time(
    zookeeper_ensemble: ZooKeeper, make_owner: MakeOwner, namespace: str
) -> None:
    outcomes: list[str] = []
    overrun = 0.0
    restarted = False

    def await_grants(count: int) -> None:
        enough = outcomes.count("granted") + count
        eventually(lambda: outcomes.count("granted") >= enough, LONG, f"{count} more grants")

    def take(using: str, timeout: float) -> str:
        nonlocal overrun
        lock, outcome = zk_lock(KEY, using=using, timeout=timeout), "granted"
        with Stopwatch() as watch:
            try:
                lock.__enter__()
            except (LockBusy, LockUnavailable) as error:
                outcome = type(error).__name__
        overrun = max(overrun, watch.taken - timeout)
        if lock.held:
            try:
                lock.release()
            except LockLost:
                outcome = "LockLost"
        return outcome

    def work(using: str, timeout: float) -> None:
        while not restarted:
            outcomes.append(take(using, timeout))

    workers = [
        make_owner().submit(work, using, timeout)
        for using in ("default", "other")
        for timeout in (0.5, 3)
    ]
    try:
        for server in zookeeper_ensemble.servers:
            server.stop()
            server.start()
            await_grants(5)
    finally:
        restarted = True
    for worker in workers:
        worker.result(PATIENCE)
    assert overrun < OVERRUN
    assert set(outcomes) <= {"granted", "LockBusy", "LockUnavailable"}
    with looked_at(zookeeper_ensemble, namespace):
        assert session_for().connected
