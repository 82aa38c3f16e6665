"""A hold and a wait that last are told while they last, and a node says since when it holds."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from distlock import (
    LockLost,
    lock_held_long,
    lock_waited_long,
    revoke,
    zk_leader,
    zk_lock,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.owner import long_hold
from distlock.owner.long_hold import learn
from distlock.owner.owner import current, label
from distlock.session.registry import session_for
from tests.inspection.tools import draw_ticket, the_lock
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions, pass_time
from tests.kit.tools import PATIENCE, MakeOwner, Tree, expire
from tests.mutex.test_signals_and_looking import received

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock_chaos.server import ZooKeeper

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

KEY = "key"

RECIPES: dict[str, Callable[..., Any]] = {
    "mutex": zk_lock,
    "unfair": lambda key, **options: zk_lock(key, fair=False, **options),
    "batch": lambda key, **options: zk_lock(key, handoff=2, **options),
    "reader": lambda key, **options: zk_rwlock(key, **options).read,
    "writer": lambda key, **options: zk_rwlock(key, **options).write,
    "semaphore": lambda key, **options: zk_semaphore(key, 1, **options),
    "semaphore mutex": zk_semaphore_mutex,
    "multi-lock": zk_multilock,
}
#: What each recipe has to wait for.
RIVALS: dict[str, Callable[..., Any]] = {
    "reader": RECIPES["writer"],
    "unfair": zk_lock,
    "batch": zk_lock,
    "multi-lock": zk_lock,
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_long_hold_is_told_while_it_lasts(
    set_options: SetOptions, make_owner: MakeOwner, recipe: str, caplog: pytest.LogCaptureFixture
) -> None:
    set_options(HELD_LONG=0.5)
    rival, waiter = RIVALS.get(recipe, RECIPES[recipe])(KEY, using="other"), make_owner()
    with received(lock_held_long) as said, label("POST /buy/7"), RECIPES[recipe](KEY) as given:
        hold = given[0] if isinstance(given, tuple) else given
        waits = waiter.submit(rival.acquire, timeout=PATIENCE)
        eventually(lambda: said and said[-1][1]["waiting"] == 1, PATIENCE)
        for _, facts in said:
            assert facts["hold"] is hold
            assert (facts["key"], facts["using"]) == (hold.key, "default")
            assert facts["who"].startswith("POST /buy/7 (")
        eventually(lambda: len(said) > 1, PATIENCE)
        told_at = [facts["held_for"] for _, facts in said]
        assert told_at[0] >= 0.5
        assert all(later >= 2 * before for before, later in pairwise(told_at))
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        assert {names[facts["thread"]] for _, facts in said} == {"distlock-timer"}
    assert waits.result(PATIENCE)
    waiter.now(rival.release)
    lines = [one for one in caplog.records if getattr(one, "outcome", "") == "held long"]
    assert lines[-1].levelno == logging.WARNING
    assert "; waiting: 1." in lines[-1].message


def test_only_a_hold_that_lasts_is_told(set_options: SetOptions, zookeeper: ZooKeeper) -> None:
    set_options(HELD_LONG=0.2)
    lock = zk_lock("released")
    with received(lock_held_long) as said:
        with lock:
            record = current().held[lock._id]
            eventually(lambda: said, PATIENCE)
        said.clear()
        assert record.long is not None
        record.long._tell()  # its order was under way at the release
        set_options(HELD_LONG=2)
        with pytest.raises(LockLost), zk_lock("lost") as lost:  # noqa: PT012
            expire(zookeeper.hosts, session_for())
            eventually(lambda: lost.lost, PATIENCE)
            with zk_leader("leader"), zk_lock("later") as later:
                eventually(lambda: said, PATIENCE)
    assert [facts["hold"] for _, facts in said] == [later]


def test_the_usual_time_of_a_lock_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_hold, "_usual", {})

    def after(*holds: float) -> float:
        for held_for in holds:
            learn(KEY, held_for)
        return long_hold._limit("usual", KEY)

    assert after() == 60
    assert after(*[0.02] * 20) == 10
    assert after(300) < 20  # once stuck, it is told about as early as before
    assert 250 < after(*[30.0] * 30) <= 300
    for number in range(2 * long_hold.MANY):
        learn(str(number), 1)
    assert len(long_hold._usual) <= long_hold.MANY


@pytest.mark.parametrize(("lock", "line"), [(zk_lock, "a%2Fb"), (zk_semaphore, "a%2Fb@permits")])
def test_the_tasks_that_wait_for_their_turn_are_told(
    tree: Tree, set_options: SetOptions, lock: Callable[..., Any], line: str
) -> None:
    set_options(HELD_LONG=0.5)
    draw_ticket(tree, line)
    with received(lock_held_long) as said, lock("a/b", *([1] if lock is zk_semaphore else ())):
        eventually(lambda: said, PATIENCE)
    assert {facts["waiting"] for _, facts in said} == {1}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_node_says_how_long_it_waited(make_owner: MakeOwner, recipe: str) -> None:
    rival, lock = RIVALS.get(recipe, RECIPES[recipe])(KEY), RECIPES[recipe](KEY, using="other")
    first, second, third = make_owner(), make_owner(), make_owner()
    first.now(rival.acquire)
    waits = second.submit(lock.acquire, timeout=PATIENCE)
    eventually(lambda: waiting(recipe) == 1, PATIENCE)
    (holder,) = eventually(lambda: known(KEY), PATIENCE)
    assert holder.seconds - holder.held < 0.5
    pass_time(1)
    first.now(rival.release)
    assert waits.result(PATIENCE)
    granted_at = time.monotonic()
    last = third.submit(rival.acquire, timeout=PATIENCE)
    if recipe != "unfair":
        pass_time(0.1)
        assert not known(KEY)  # it is too young to tell
    (holder,) = eventually(lambda: known(KEY), PATIENCE)
    held_for = time.monotonic() - granted_at
    assert held_for - 0.5 < holder.held < held_for + 0.5
    assert recipe == "unfair" or holder.seconds - holder.held > 1
    with pytest.raises(TimeoutError):  # it was woken by the write, and waits on
        last.result(0.5)
    second.now(lock.release)
    assert last.result(PATIENCE)
    third.now(rival.release)


def waiting(recipe: str) -> int:
    """How many are seen to wait; one who does not queue has no node."""
    return 1 if recipe == "unfair" else the_lock(KEY).waiting


def known(key: str) -> list[Any]:
    """The holders of whom it is known how long they have held."""
    return [one for one in the_lock(key).holders if one.held is not None]


def test_a_request_to_leave_outlives_the_note(make_owner: MakeOwner) -> None:
    asked: list[object] = []
    lock, holder = zk_lock(KEY, on_revoke=asked.append), make_owner()
    holder.now(lock.acquire)
    assert revoke(lock.holder())
    eventually(lambda: asked, PATIENCE)
    pass_time(2)  # the heartbeat that notes the time has come
    assert the_lock(KEY).revoked
    assert len(asked) == 1
    holder.now(lock.release)
    with lock:
        eventually(lambda: known(KEY), PATIENCE)
        assert revoke(lock.holder())
        eventually(lambda: len(asked) == 2, PATIENCE)
        (seen,) = the_lock(KEY).revoked
        assert seen.held is not None


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_long_wait_is_told_where_it_waits(
    set_options: SetOptions, make_owner: MakeOwner, recipe: str, caplog: pytest.LogCaptureFixture
) -> None:
    set_options(WAITED_LONG=0.5)
    rival, holder = RIVALS.get(recipe, RECIPES[recipe])(KEY, using="other"), make_owner()
    holder.now(rival.acquire)
    with received(lock_waited_long) as said, label("POST /buy/7"):
        assert not RECIPES[recipe](KEY).acquire(timeout=3.5)
    told_at = [facts["waited"] for _, facts in said]
    assert len(told_at) in (2, 3)
    assert told_at[0] >= 0.5
    assert told_at[1] >= 2 * told_at[0]
    for _, facts in said:
        assert facts["thread"] == threading.get_ident()
        assert (facts["key"], facts["using"]) == (KEY, "default")
        assert facts["who"].startswith("POST /buy/7 (")
    assert "has waited for the lock 'key' for" in caplog.text
    holder.now(rival.release)


def test_a_task_that_waits_long_is_told(set_options: SetOptions, make_owner: MakeOwner) -> None:
    set_options(WAITED_LONG=0.5)
    lock, holder = zk_lock(KEY, using="other"), make_owner()
    holder.now(lock.acquire)
    with received(lock_waited_long) as said:
        assert not asyncio.run(zk_lock(KEY).aacquire(timeout=2))
    assert said
    assert said[0][1]["who"].startswith("Task-")
    holder.now(lock.release)


def test_a_candidate_waits_without_a_word(set_options: SetOptions) -> None:
    set_options(WAITED_LONG=0.1)
    with received(lock_waited_long) as said, zk_leader(KEY, using="other"):
        assert not zk_leader(KEY).acquire(timeout=1.5)
    assert said == []


@pytest.mark.parametrize("setting", ["HELD_LONG", "WAITED_LONG"])
def test_none_does_not_look(set_options: SetOptions, make_owner: MakeOwner, setting: str) -> None:
    off: Any = {setting: None}
    set_options(**off)
    set_options("other", HELD_LONG=0.2, WAITED_LONG=0.2)
    lock, other = zk_lock(KEY), zk_lock(KEY, using="other")
    holder, waiter = make_owner(), make_owner()
    for one, two in ((lock, other), (other, lock)):
        with received(lock_held_long, lock_waited_long) as said:
            holder.now(one.acquire)
            waits = waiter.submit(two.acquire, timeout=PATIENCE)
            pass_time(2)
            holder.now(one.release)
            assert waits.result(PATIENCE)
            waiter.now(two.release)
        assert {signal for signal, facts in said if facts["using"] == "default"} <= {
            lock_waited_long if setting == "HELD_LONG" else lock_held_long
        }
        assert any(facts["using"] == "other" for _, facts in said)
