"""The limit: raised at run time it wakes who waits (CURATOR-75); a peer's other one is logged."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest
from kazoo.exceptions import NoNodeError

from distlock import zk_semaphore, zk_semaphore_mutex
from distlock.contenders.semaphore import SemaphoreContender, SemaphorePart
from distlock.queue.semaphore import setting
from tests.kit.helpers import eventually, logged
from tests.kit.permits import KEY, Permits
from tests.kit.tools import PATIENCE, MakeOwner

pytestmark = pytest.mark.usefixtures("permits")


def written(permits: Permits) -> bytes:
    """What a client reads of the limit."""
    return bytes(permits.tree.client.get(permits.path)[0])


@pytest.mark.parametrize("using", ["default", "other"])
def test_a_raised_limit_wakes_who_waits_in_any_process(
    make_owner: MakeOwner, permits: Permits, using: str
) -> None:
    """CURATOR-75."""
    semaphore = zk_semaphore(KEY, 1)
    assert semaphore.acquire()
    waiting = [make_owner().submit(semaphore.acquire, timeout=PATIENCE) for _ in range(2)]
    permits.await_head(1, 2)
    zk_semaphore(KEY, 1, using=using).limit = 3
    assert all(one.result(PATIENCE) for one in waiting)
    assert semaphore.limit == 3
    semaphore.release(3)


def test_a_limit_that_was_set_counts_for_new_objects_too() -> None:
    semaphore = zk_semaphore(KEY, 1)
    with semaphore:
        semaphore.limit = 2
        assert zk_semaphore(KEY, 1, using="other").acquire(timeout=0)
        newcomer = zk_semaphore(KEY, 1, using="other")
        assert not newcomer.acquire(timeout=0)
        assert newcomer.limit == 2
        newcomer.release()


def test_a_limit_that_was_set_outlives_an_idle_semaphore_until_it_is_unset(
    permits: Permits,
) -> None:
    def idle() -> None:
        """Do as the server does with a container that is empty, if it has not done so."""
        for parent in (permits.path, permits.queue):
            with suppress(NoNodeError):
                permits.tree.client.delete(parent)

    semaphore = zk_semaphore(KEY, 1)
    semaphore.limit = 3
    with semaphore:
        semaphore.limit = 2
    eventually(lambda: not permits.names() and not permits.line(), PATIENCE)
    idle()
    assert zk_semaphore(KEY, 1, using="other").acquire(timeout=0, leases=2)
    assert not zk_semaphore(KEY, 3).acquire(timeout=0)
    zk_semaphore(KEY, 1, using="other").release(2)
    del semaphore.limit
    assert semaphore.limit == 1
    for _ in range(2):
        with zk_semaphore(KEY, 3):
            assert zk_semaphore(KEY, 3, using="other").acquire(timeout=0, leases=2)
            zk_semaphore(KEY, 3, using="other").release(2)
        eventually(lambda: not permits.names() and not permits.line(), PATIENCE)
        idle()


def test_a_limit_that_is_unset_leaves_nothing_at_an_unused_semaphore(permits: Permits) -> None:
    semaphore = zk_semaphore("unused", 3)
    semaphore.limit = 1
    for _ in range(2):
        del semaphore.limit
        assert not permits.tree.children(permits.tree.path("unused"))


def test_a_caller_that_wants_more_than_the_limit_of_now_is_refused(make_owner: MakeOwner) -> None:
    semaphore = zk_semaphore(KEY, 4)
    assert semaphore.acquire(leases=2)
    semaphore.limit = 2
    late = zk_semaphore(KEY, 4, using="other")
    with pytest.raises(ValueError, match="can never be had"):
        make_owner().now(late.acquire, timeout=PATIENCE, leases=3)
    semaphore.limit = 5
    assert zk_semaphore(KEY, 4, using="other").acquire(timeout=PATIENCE, leases=3)
    zk_semaphore(KEY, 5, using="other").release(3)
    semaphore.release(2)


def test_a_limit_lowered_between_the_turn_and_its_permit_counts(
    permits: Permits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process had been stopped there."""
    new_permit = SemaphoreContender.new_permit

    def late(contender: SemaphoreContender) -> SemaphorePart:
        permits.tree.client.set(permits.path, setting(1))
        return new_permit(contender)

    with zk_semaphore(KEY, 2):
        monkeypatch.setattr(SemaphoreContender, "new_permit", late)
        assert not zk_semaphore(KEY, 2).acquire(timeout=0)


@pytest.mark.parametrize("key", [KEY, "fresh"])
def test_a_limit_that_differs_from_the_peers_is_warned_of_once_on_both_sides(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "distlock"), zk_semaphore(key, 5):
        for _ in range(3):
            with zk_semaphore(key, 3, using="other"), zk_semaphore(key, 5):
                pass
    said = [record.getMessage() for record in caplog.records if "limit" in record.getMessage()]
    assert len(said) == 2
    assert "limit of 3 here and of 5" in said[0]
    assert "limit of 5 here and of 3" in said[1]


def test_each_goes_by_its_own_limit_where_they_differ() -> None:
    assert zk_semaphore(KEY, 2).acquire(leases=2)
    assert not zk_semaphore(KEY, 2).acquire(timeout=0)
    assert not zk_semaphore(KEY, 1, using="other").acquire(timeout=0)
    assert zk_semaphore(KEY, 3, using="other").acquire(timeout=0)
    zk_semaphore(KEY, 2).release(2)
    zk_semaphore(KEY, 3, using="other").release()


def test_peers_with_the_same_limit_hear_nothing(
    permits: Permits, caplog: pytest.LogCaptureFixture
) -> None:
    with zk_semaphore(KEY, 3), zk_semaphore(KEY, 3, using="other"):
        eventually(lambda: written(permits) == b'{"v":1,"limit":3}', PATIENCE)
        zk_semaphore(KEY, 3).limit = 4
        with zk_semaphore(KEY, 3, using="other"):
            assert written(permits) == b'{"v":1,"limit":4,"set":true}'
    assert not logged(caplog)


@pytest.mark.parametrize(
    "data",
    [b"", b"127.0.0.1", b"\xff", b"[]", b'{"limit": 0}', b'{"limit": true}', b'{"limit":"9"}'],
)
def test_what_is_no_limit_is_written_over(
    permits: Permits, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Curator writes its address into a node that it creates as a parent."""
    with zk_semaphore(KEY, 2):
        permits.tree.client.set(permits.path, data)
        with zk_semaphore(KEY, 2, using="other"):
            eventually(lambda: written(permits) == b'{"v":1,"limit":2}', PATIENCE)
    assert not logged(caplog)


def test_a_mutex_has_one_permit_whatever_is_set() -> None:
    with zk_semaphore_mutex(KEY):
        zk_semaphore(KEY, 1, using="other").limit = 5
        assert not zk_semaphore_mutex(KEY).acquire(timeout=0)
        assert not zk_semaphore_mutex(KEY, using="other").acquire(timeout=0)


def test_a_waiter_that_wants_more_than_a_lowered_limit_is_refused_and_blocks_nobody(
    make_owner: MakeOwner, permits: Permits
) -> None:
    semaphore = zk_semaphore(KEY, 3)
    assert semaphore.acquire()
    refused = make_owner().submit(semaphore.acquire, timeout=PATIENCE, leases=3)
    permits.await_(1 + 3, 1)
    served = make_owner().submit(semaphore.acquire, timeout=PATIENCE)
    eventually(lambda: len(semaphore.waiters()) == 2, PATIENCE)
    semaphore.limit = 2
    with pytest.raises(ValueError, match="can never be had"):
        refused.result(PATIENCE)
    assert served.result(PATIENCE)
    semaphore.release(2)
