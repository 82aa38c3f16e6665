"""Bad input, a server that is away, and a child that was forked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from distlock import (
    LockUnavailable,
    NotOwner,
    zk_semaphore,
)
from tests.fork.tools import heard, program
from tests.kit.permits import KEY, Permits
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("permits")


@pytest.mark.parametrize(
    ("limit", "error"),
    [(0, ValueError), (-1, ValueError), (True, TypeError), (2.0, TypeError), ("3", TypeError)],
    ids=repr,
)
def test_a_limit_is_a_whole_number_of_one_or_more(limit: Any, error: type[Exception]) -> None:
    semaphore = zk_semaphore(KEY, 2)
    with pytest.raises(error, match="limit"):
        zk_semaphore(KEY, limit)
    with pytest.raises(error, match="limit"):
        semaphore.limit = limit
    assert semaphore.limit == 2


@pytest.mark.parametrize(
    ("wanted", "error"), [(0, ValueError), (-2, ValueError), (True, TypeError), (None, TypeError)]
)
def test_permits_are_asked_for_and_released_in_whole_numbers(
    wanted: Any, error: type[Exception]
) -> None:
    semaphore = zk_semaphore(KEY, 2)
    with pytest.raises(error, match="leases"):
        semaphore.acquire(leases=wanted)
    with pytest.raises(error, match="leases"):
        semaphore.release(wanted)


def test_more_permits_than_the_limit_are_refused(permits: Permits) -> None:
    semaphore = zk_semaphore(KEY, 2)
    with pytest.raises(ValueError, match="there are 2"):
        semaphore.acquire(timeout=None, leases=3)
    with pytest.raises(ValueError, match="there are 2"):
        asyncio.run(semaphore.aacquire(timeout=None, leases=3))
    permits.await_(0, 0)


def test_a_release_of_what_was_not_acquired_is_refused(permits: Permits) -> None:
    semaphore = zk_semaphore(KEY, 3)
    with pytest.raises(NotOwner, match="1 of 'key'"):
        semaphore.release()
    assert semaphore.acquire(leases=2)
    with pytest.raises(NotOwner, match="3 of 'key'"):
        semaphore.release(3)
    assert semaphore.held == len(permits.names()) == 2
    semaphore.release(2)


def test_a_dead_server_is_unavailable_and_not_busy(broken_link: Any) -> None:
    broken_link.cut()
    with pytest.raises(LockUnavailable):
        zk_semaphore(KEY, 1).acquire(timeout=0.1)
    with pytest.raises(LockUnavailable):
        zk_semaphore(KEY, 1).acquire(timeout=0)
    with pytest.raises(LockUnavailable):
        zk_semaphore(KEY, 1).locked()
    with pytest.raises(LockUnavailable):
        zk_semaphore(KEY, 1).limit = 3


# --- fork ----------------------------------------------------------------------------------------

FORKS = """
from distlock import zk_semaphore
semaphore = zk_semaphore("key", 2)
assert semaphore.acquire()
with semaphore as hold:
    def child():
        found = {"held": semaphore.held, "lost": hold.lost}
        with timed(found, "release"):
            semaphore.release()
        found["try"] = semaphore.acquire(timeout=0)
        with zk_semaphore("another", 1) as own:
            found["token"] = own.token > 0
        return found
    found = in_a_child(child)
    hold.verify()
    found["parent"] = semaphore.held
semaphore.release()
tell(found)
hear()
"""


def test_a_forked_child_has_nothing_of_its_parents(zookeeper: ZooKeeper, permits: Permits) -> None:
    with program(FORKS, zookeeper.hosts, permits.tree.namespace) as process:
        found = heard(process)
        found.pop("release took")
        assert found == {
            "held": 0,
            "lost": True,
            "release": "NotOwner",
            "try": False,
            "token": True,
            "parent": 2,
            "status": 0,
        }
        permits.await_(0, 0)
        process.communicate("\n", timeout=PATIENCE)
