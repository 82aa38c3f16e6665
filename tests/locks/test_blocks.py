"""Blocks that tell: an attempt, an error of one's own, a template with its values."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from distlock import LockBusy, LockKeyError, zk_lock, zk_multilock, zk_rwlock, zk_semaphore
from distlock.owner.owner import current
from distlock.signals import lock_acquired
from tests.locks.test_lock import RECIPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock import Hold
    from tests.kit.tools import Owner

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]


class Taken(Exception):
    """What a site raises for a lock that is busy."""


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_attempt_yields_the_hold_and_ends_with_its_block(recipe: str) -> None:
    lock = RECIPES[recipe]()
    with lock.attempt(timeout=0) as hold:
        assert hold is not None
        assert not any(one.released for one in (hold if isinstance(hold, tuple) else (hold,)))
    assert all(one.released for one in (hold if isinstance(hold, tuple) else (hold,)))
    assert not current().held


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("recipe", ["mutex", "unfair", "handoff", "read", "write", "multilock"])
def test_an_attempt_at_a_busy_lock_yields_none_and_releases_nothing(recipe: str) -> None:
    with RECIPES[recipe]().attempt(timeout=0) as hold:
        assert hold is None


def test_an_attempt_inside_a_block_of_the_same_lock_enters_it_once_more() -> None:
    lock = zk_lock("key")
    with lock:
        with lock.attempt(timeout=0) as hold:
            assert hold is not None
        assert lock.held
    assert not lock.held


def test_an_attempt_at_a_semaphore_without_a_free_permit_yields_none() -> None:
    semaphore = zk_semaphore("key", 1)
    with semaphore, semaphore.attempt(timeout=0) as hold:
        assert hold is None
        assert semaphore.held == 1


def test_an_attempt_may_be_made_again() -> None:
    semaphore = zk_semaphore("key", 1)
    attempt = semaphore.attempt(timeout=0)
    with attempt as hold:
        assert hold is not None
    with semaphore, attempt as hold:
        assert hold is None
    assert semaphore.held == 0


def test_what_is_taken_in_the_block_of_a_vain_attempt_stays(holder: Owner) -> None:
    lock = zk_lock("key")
    with lock.attempt(timeout=0) as hold:
        assert hold is None
        holder.now(zk_lock("key", using="other").release)
        assert lock.acquire(timeout=5)
    assert lock.held
    lock.release()


def test_an_exception_of_the_body_leaves_the_block_as_it_is() -> None:
    with pytest.raises(LockBusy, match="another"), zk_lock("key", busy=Taken).attempt():
        raise LockBusy("another", key="another")
    assert not current().held


@pytest.mark.usefixtures("holder")
def test_an_awaited_attempt() -> None:
    async def main() -> None:
        async with zk_lock("another").attempt(timeout=0) as hold:
            assert hold is not None
        assert hold.released
        async with zk_lock("key").attempt(timeout=0) as hold:
            assert hold is None

    asyncio.run(main())


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("make", [zk_lock, zk_multilock])
def test_a_block_of_a_busy_lock_raises_the_error_of_ones_own(make: Callable[..., Any]) -> None:
    with pytest.raises(Taken, match="'key' is busy") as caught:
        make("key", timeout=0, busy=Taken).__enter__()
    assert isinstance(caught.value.__cause__, LockBusy)
    with pytest.raises(Taken, match=r"^key$"), make("key", timeout=0, busy=lambda e: Taken(e.key)):
        pass
    assert make("key", busy=Taken).acquire(timeout=0) is False

    async def main() -> None:
        async with make("key", timeout=0, busy=Taken):
            pass

    with pytest.raises(Taken):
        asyncio.run(main())


def test_an_error_that_cannot_be_raised_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="exception class or a callable"):
        zk_lock("key", busy="Taken")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        zk_lock,
        lambda key, **how: zk_rwlock(key, **how).read,
        lambda key, **how: zk_semaphore(key, 2, **how),
    ],
)
def test_a_template_gets_its_values_and_is_known_by_its_text(make: Callable[..., Any]) -> None:
    holds = []

    def note(*, hold: Hold, **_: Any) -> None:
        holds.append(hold)

    lock_acquired.connect(note)
    try:
        with make("stock:<sku>:<size>", sku="a:b", size=4):
            pass
    finally:
        lock_acquired.disconnect(note)
    (hold,) = holds
    assert (hold.key, hold.template) == ("stock:a%3Ab:4", "stock:<sku>:<size>")


def test_a_template_without_a_value_or_with_a_wrong_name_is_refused() -> None:
    with pytest.raises(LockKeyError, match="sku=sku"):
        zk_lock("stock:<sku>")
    with pytest.raises(LockKeyError, match="empty"):
        zk_lock("stock:<sku>", sku="")
    with pytest.raises(TypeError, match="'waits' is neither an option"):
        zk_lock("stock:<sku>", sku=1, waits=3)
    with pytest.raises(TypeError, match="'waits' is neither an option"):
        zk_lock("stock", waits=3)
