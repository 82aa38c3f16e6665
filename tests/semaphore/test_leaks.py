"""No permit leaks (CURATOR-376, -462), and no watch.

On an interrupt, on a time-out, and when threads release at once.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from distlock import LockUnavailable, NotOwner, lock_acquired, lock_released, zk_semaphore
from distlock.contenders.semaphore import SemaphorePart
from distlock.queue.semaphore import Permit
from distlock.session import patience
from distlock.session.registry import session_for
from tests.kit.helpers import eventually, spawn_python
from tests.kit.permits import KEY, Permits
from tests.kit.tools import PATIENCE, MakeOwner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.dispatch import Signal

    from distlock_chaos.server import ZooKeeper


# --- interrupts and time-outs --------------------------------------------------------------------


def test_a_permit_whose_caller_leaves_before_it_joins_keeps_no_heartbeat(
    permits: Permits, monkeypatch: pytest.MonkeyPatch
) -> None:
    join, left = SemaphorePart.join, []

    def join_late(part: SemaphorePart) -> None:
        if isinstance(part.machine, Permit):
            eventually(lambda: part.left)
            left.append(part)
        join(part)

    monkeypatch.setattr(SemaphorePart, "join", join_late)
    monkeypatch.setattr(patience, "ANSWER_SECONDS", 0.2)
    with pytest.raises(LockUnavailable):
        zk_semaphore(KEY, 2).acquire(timeout=0)
    eventually(lambda: left)
    permits.await_(0, 0)
    eventually(lambda: not session_for().heartbeat.beneficiaries())
    assert not session_for().newest


WAITS_IN_MAIN_THREAD = """
import sys
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2])
from distlock import zk_semaphore
try:
    zk_semaphore("key", 1).acquire(timeout=None)
except BaseException as error:
    print(type(error).__name__)
sys.stdin.read()
"""


def test_an_interrupted_wait_leaves_nothing(zookeeper: ZooKeeper, permits: Permits) -> None:
    """CURATOR-462. The process lives on, so that its session does not clean up for it."""
    with (
        zk_semaphore(KEY, 1),
        spawn_python(WAITS_IN_MAIN_THREAD, zookeeper.hosts, permits.tree.namespace) as process,
    ):
        permits.await_head(1)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "KeyboardInterrupt\n"
        permits.await_(1, 0)
        process.communicate(timeout=PATIENCE)


@contextmanager
def interrupted_by(sent: Signal) -> Iterator[None]:
    """Where the signal is first sent, an exception lands, as one of a soft time limit may."""

    def interrupt(**_: object) -> None:
        sent.disconnect(interrupt)
        raise KeyboardInterrupt

    sent.connect(interrupt)
    with pytest.raises(KeyboardInterrupt):
        yield


@pytest.mark.parametrize("wanted", [1, 2])
def test_an_exception_right_after_the_grant_leaves_no_lease(permits: Permits, wanted: int) -> None:
    semaphore = zk_semaphore(KEY, 2)
    with interrupted_by(lock_acquired):
        semaphore.acquire(leases=wanted)
    assert semaphore.held == 0
    permits.await_(0, 0)


def test_an_exception_in_the_middle_of_a_release_releases_all(permits: Permits) -> None:
    semaphore = zk_semaphore(KEY, 3)
    assert semaphore.acquire(leases=3)
    with interrupted_by(lock_released):
        semaphore.release(2)
    assert semaphore.held == 1
    permits.await_(1, 0)
    semaphore.release()


# --- releases at once ----------------------------------------------------------------------------


def test_threads_that_release_at_once_give_back_a_permit_each(
    permits: Permits, make_owner: MakeOwner
) -> None:
    """CURATOR-376: one permit given back twice is another one that is never given back."""
    semaphore, interval = zk_semaphore(KEY, 8), sys.getswitchinterval()
    owners = [make_owner() for _ in range(6)]
    together = threading.Barrier(len(owners), timeout=PATIENCE)

    def release() -> bool:
        together.wait()
        try:
            semaphore.release()
        except NotOwner:
            return False
        return True

    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            assert semaphore.acquire(leases=4)
            released = [owner.submit(release) for owner in owners]
            assert sum(one.result(PATIENCE) for one in released) == 4
            assert semaphore.held == 0
    finally:
        sys.setswitchinterval(interval)
    permits.await_(0, 0)
