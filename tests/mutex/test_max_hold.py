"""A hold that lasts for longer than its ``max_hold`` is given up and counts as lost (C26)."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from distlock import (
    LockLost,
    lock_lost,
    lock_released,
    zk_leader,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, forgets_all
from tests.mutex.test_signals_and_looking import received

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from distlock_chaos.proxy import TcpProxy

pytestmark = pytest.mark.usefixtures("tree")

KEY = "key"
LIMIT = 0.3

#: The lock with a longest hold, and one that it excludes, by recipe.
RECIPES: dict[str, tuple[Callable[..., Any], Callable[..., AbstractContextManager[Any]]]] = {
    "mutex": (lambda **options: zk_lock(KEY, **options), zk_lock),
    "unfair": (lambda **options: zk_lock(KEY, fair=False, **options), zk_lock),
    "batch": (lambda **options: zk_lock(KEY, handoff=2, **options), zk_lock),
    "reader": (
        lambda **options: zk_rwlock(KEY, **options).read,
        lambda key, **options: zk_rwlock(key, **options).write,
    ),
    "writer": (
        lambda **options: zk_rwlock(KEY, **options).write,
        lambda key, **options: zk_rwlock(key, **options).read,
    ),
    "semaphore": (
        lambda **options: zk_semaphore(KEY, 1, **options),
        lambda key, **options: zk_semaphore(key, 1, **options),
    ),
    "semaphore mutex": (
        lambda **options: zk_semaphore_mutex(KEY, **options),
        zk_semaphore_mutex,
    ),
    "multi-lock": (lambda **options: zk_multilock(KEY, **options), zk_lock),
    "leader": (
        lambda **options: zk_leader(KEY, **options),
        zk_leader,
    ),
}


def the_one(given: Any) -> Any:
    return given[0] if isinstance(given, tuple) else given


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("using", ["default", "other"])
def test_the_next_one_gets_the_lock_while_the_holder_goes_on(
    make_owner: MakeOwner, recipe: str, using: str
) -> None:
    limited, rival = RECIPES[recipe]
    lost_when_granted: list[bool] = []
    tokens: list[int] = []

    def take(hold: Any) -> None:
        with rival(KEY, using=using, timeout=PATIENCE) as given:
            lost_when_granted.append(hold.lost)
            tokens.append(the_one(given).token)
            with pytest.raises(LockLost):
                hold.check()

    lock = limited(max_hold=LIMIT)
    with received(lock_lost, lock_released) as said:
        with pytest.raises(LockLost) as raised, lock as given:  # noqa: PT012
            hold = the_one(given)
            hold.check()
            assert 0 < hold.valid_for() <= LIMIT
            make_owner().now(take, hold)
            eventually(lambda: lock_lost in [signal for signal, _ in said], PATIENCE)
            assert hold.valid_for() == 0
        assert lost_when_granted == [True]
        assert tokens[0] > hold.token
        assert raised.value.reason == hold.lost_reason == "max_hold"
        assert raised.value.hold is hold
        assert "longer than its max_hold" in str(raised.value)
        mine = [(signal, facts) for signal, facts in said if facts["hold"] is hold]
        assert [signal for signal, _ in mine] == [lock_lost, lock_released]
        assert mine[0][1]["reason"] == "max_hold"
    with lock as given:
        the_one(given).check()
    forgets_all(session_for())


def test_no_check_passes_once_somebody_else_has_it(make_owner: MakeOwner) -> None:
    waiter, rival = make_owner(), zk_lock(KEY, using="other", timeout=PATIENCE)
    overruns = 0
    for _ in range(20):
        with pytest.raises(LockLost), zk_lock(KEY, max_hold=0.05, timeout=PATIENCE) as hold:  # noqa: PT012
            granted = waiter.submit(rival.acquire)
            while not granted.done():  # as busy as a holder can be
                hold.lost  # noqa: B018
            overruns += not hold.lost
        waiter.now(rival.release)
    assert overruns == 0


def test_a_hold_that_ends_in_time_hears_nothing_of_its_limit() -> None:
    lock = zk_lock(KEY, max_hold=timedelta(seconds=PATIENCE))
    with received(lock_lost) as said:
        with lock as first:
            assert LIMIT < first.valid_for() <= PATIENCE
        first._grant._give_up()
        with lock as second:
            first._grant._give_up()
            assert not second.lost
        assert not first.lost
        assert first.lost_reason == ""
        assert said == []


def test_the_limit_counts_from_the_first_acquire() -> None:
    lock = zk_lock(KEY, max_hold=LIMIT)
    with pytest.raises(LockLost), lock as hold:  # noqa: PT012
        ends_at = hold._grant.ends_at
        with lock as again:
            assert again is hold
            assert hold._grant.ends_at == ends_at
        eventually(lambda: hold.lost, PATIENCE)
        with pytest.raises(LockLost) as raised:
            lock.acquire()
        assert raised.value.reason == "max_hold"
    assert not lock.held


def test_a_limit_within_a_hold_does_not_count() -> None:
    with zk_lock(KEY) as hold:
        with zk_lock(KEY, max_hold=LIMIT) as again:
            assert again is hold
        assert hold.valid_for() > LIMIT


def test_the_limit_outlives_the_thread_that_took_the_lock(tree: Tree) -> None:
    thread = threading.Thread(target=zk_lock(KEY, max_hold=LIMIT).acquire)
    thread.start()
    thread.join(PATIENCE)
    tree.await_line(KEY, 1)
    with zk_lock(KEY, using="other", timeout=PATIENCE):
        pass


def test_a_writer_that_reads_goes_on_reading_when_its_writing_was_given_up() -> None:
    lock = zk_rwlock(KEY, max_hold=LIMIT)
    reading = zk_rwlock(KEY).read
    with pytest.raises(LockLost), lock.write as writing:  # noqa: PT012
        with reading as hold:
            eventually(lambda: writing.lost, PATIENCE)
            hold.verify()
            assert not zk_rwlock(KEY, using="other").write.acquire(timeout=0)
        assert zk_rwlock(KEY, using="other").write.acquire(timeout=PATIENCE)
        zk_rwlock(KEY, using="other").write.release()


def test_a_hold_given_up_without_a_connection_frees_the_lock_with_the_next(
    broken_link: TcpProxy,
) -> None:
    await_connection()
    with pytest.raises(LockLost) as raised, zk_lock(KEY, max_hold=LIMIT) as hold:  # noqa: PT012
        broken_link.cut()
        number = session_for().id
        eventually(lambda: hold.lost, PATIENCE)
        broken_link.pass_through()
        with zk_lock(KEY, using="other", timeout=PATIENCE):
            assert session_for().id == number
    assert raised.value.reason == "max_hold"


def test_a_decorated_function_has_a_longest_hold() -> None:
    @zk_locked("<name>", max_hold=LIMIT)
    def work(name: str) -> None:
        with zk_lock(name, using="other", timeout=PATIENCE):
            pass

    with pytest.raises(LockLost) as raised:
        work(KEY)
    assert raised.value.reason == "max_hold"


def test_a_leader_that_leads_for_too_long_goes_to_the_end_of_the_line(
    make_owner: MakeOwner,
) -> None:
    leader, rival = zk_leader(KEY, max_hold=LIMIT), zk_leader(KEY, using="other")
    terms: list[int] = []

    def work(hold: Any) -> None:
        terms.append(hold.token)
        if len(terms) == 2:
            leader.stop()
        while leader.stay(PATIENCE):
            pass

    runner = make_owner().submit(leader.run, work)
    eventually(lambda: terms, PATIENCE)
    with rival as hold:
        assert hold.token > terms[0]
    runner.result(PATIENCE)
    assert terms[1] > hold.token


def test_many_short_holds_leave_nothing_behind() -> None:
    lock = zk_lock(KEY, max_hold=3600)
    for _ in range(5):
        with lock:
            pass
    assert session_for().heartbeat.beneficiaries() == []


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(0, ValueError), (-1, ValueError), ("5", TypeError), (True, TypeError)],
)
@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_no_limit_is_refused(recipe: str, wrong: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="max_hold must be a number of seconds above 0"):
        RECIPES[recipe][0](max_hold=wrong)
    with pytest.raises(kind, match="max_hold must be a number of seconds above 0"):
        zk_locked("<name>", max_hold=wrong)


def test_a_limit_longer_than_any_clock_is_none() -> None:
    with zk_lock(KEY, max_hold=1e12) as hold:
        hold.check()
