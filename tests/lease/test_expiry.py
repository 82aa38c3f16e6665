"""A lease ends by the server's clock, and exactly one of those who want it has it then."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from distlock import LockLost, NotOwner, zk_lease
from distlock.engine.deadline import now
from distlock.lease import operation
from distlock.lease import persistent as sweeping
from distlock.lease.hold import DRIFT
from distlock.lease.persistent import sweep
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import spawn_python
from tests.kit.losses import said, tell
from tests.kit.tools import PATIENCE, MakeOwner, Tree
from tests.lease.tools import LONG, SHORT, await_end, node_path, owner_of

pytestmark = pytest.mark.usefixtures("tree")

CONTENDERS = 8
ROUNDS = 20


# --- one of many ---------------------------------------------------------------------------------


def test_of_many_who_try_once_exactly_one_gets_an_ended_lease(
    tree: Tree, make_owner: MakeOwner
) -> None:
    owners = [make_owner() for _ in range(CONTENDERS)]
    zk_lease("key", SHORT, owner="first").acquire()
    for turn in range(ROUNDS):
        await_end(zk_lease("key", LONG))
        leases = [
            zk_lease("key", LONG, owner=f"{turn}-{number}", using=["default", "other"][number % 2])
            for number in range(CONTENDERS)
        ]
        tries = at_once(
            *((owner, lease.acquire) for owner, lease in zip(owners, leases, strict=True)),
            timeout=0,
        )
        granted = [one.result(PATIENCE) for one in tries]
        assert granted.count(True) == 1
        winner = leases[granted.index(True)]
        assert owner_of(tree, "key") == winner.owner
        winner.renew(0.01)


def at_once(*orders: tuple[Any, Any], **options: Any) -> list[Future[Any]]:
    """Let several owners do something at the same time."""
    barrier = threading.Barrier(len(orders))

    def do(order: Any) -> Any:
        barrier.wait(PATIENCE)
        return order(**options)

    return [owner.submit(do, order) for owner, order in orders]


# --- races ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("renewing", ["default", "other"], ids=["known", "unknown"])
def test_either_a_renewal_or_a_take_over_succeeds(
    tree: Tree, make_owner: MakeOwner, renewing: str
) -> None:
    one, another = make_owner(), make_owner()
    for turn in range(ROUNDS):
        key = f"key-{turn}"
        assert zk_lease(key, 0.02, owner="me").acquire()
        await_end(zk_lease(key, LONG))
        mine = zk_lease(key, LONG, owner="me", using=renewing)
        yours = zk_lease(key, LONG, owner="you")
        renewed, taken = at_once((one, mine.renew), (another, lambda y=yours: y.acquire(timeout=0)))
        taken_over = taken.result(PATIENCE)
        assert isinstance(renewed.exception(PATIENCE), LockLost if taken_over else type(None))
        assert owner_of(tree, key) == ("you" if taken_over else "me")


@pytest.mark.parametrize("releasing", ["default", "other"], ids=["known", "unknown"])
def test_a_late_release_never_removes_what_somebody_else_has_taken(
    tree: Tree, make_owner: MakeOwner, releasing: str
) -> None:
    one, another = make_owner(), make_owner()
    for turn in range(ROUNDS):
        key = f"key-{turn}"
        assert zk_lease(key, 0.02, owner="me").acquire()
        await_end(zk_lease(key, LONG))
        mine = zk_lease(key, LONG, owner="me", using=releasing)
        yours = zk_lease(key, LONG, owner="you")
        released, taken = at_once((one, mine.release), (another, lambda y=yours: y.acquire()))
        assert taken.result(PATIENCE)
        assert isinstance(released.exception(PATIENCE), NotOwner | None)
        assert owner_of(tree, key) == "you"
        yours.renew()


@pytest.mark.parametrize("what", ["renewed", "taken over", "released and taken"])
def test_the_sweep_leaves_alone_what_has_changed_since_it_looked(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    mine, yours = zk_lease("key", 0.02, owner="me"), zk_lease("key", LONG, owner="you")
    assert mine.acquire()
    await_end(mine)
    remove = operation.remove

    def change_and_remove(*args: Any) -> None:
        if what == "renewed":
            mine.renew(LONG)
        else:
            if what == "released and taken":
                mine.release()
            assert yours.acquire(timeout=0)
        remove(*args)

    monkeypatch.setattr(sweeping, "remove", change_and_remove)
    assert sweep().removed == 0
    assert owner_of(tree, "key") == ("me" if what == "renewed" else "you")


# --- whose clock ---------------------------------------------------------------------------------

A_DAY = 86400

# Whatever this process asks for the time of day is wrong by so many seconds.
WRONG_CLOCK = """
import sys, time
real, wrong = time.time, float(sys.argv[3])
time.time = lambda: real() + wrong
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2], CONNECT_TIMEOUT=15)
from distlock import LockLost, zk_lease
from distlock.lease.persistent import sweep
lease = zk_lease("key", 1, owner="wrong", timeout=15)
for line in sys.stdin:
    try:
        print(eval(line))
    except LockLost:
        print("lost")
"""


@pytest.mark.parametrize("wrong", [-A_DAY, A_DAY], ids=["slow", "fast"])
def test_the_clocks_of_clients_do_not_matter(tree: Tree, zookeeper: ZooKeeper, wrong: int) -> None:
    mine = zk_lease("key", LONG, owner="right")
    with spawn_python(WRONG_CLOCK, zookeeper.hosts, tree.namespace, str(wrong)) as process:

        def there(order: str) -> str:
            tell(process, order)
            return said(process)

        # A live lease is not taken by one whose clock is ahead, nor swept.
        assert mine.acquire()
        assert there("lease.acquire(timeout=0)") == "False"
        assert there("lease.holder().owner_id") == "right"
        assert there("sweep().removed") == "0"
        # One that has ended is taken, though a clock that is behind has not seen it begin.
        mine.renew(0.05)
        await_end(mine)
        assert there("lease.holder()") == "None"
        assert there("lease.acquire(timeout=0)") == "True"
        # And theirs lasts for its time, no longer and no shorter.
        since = now()
        assert there("lease.renew(1).valid_for() <= 1") == "True"
        assert mine.acquire()
        assert now() - since >= 1
        assert there("lease.renew()") == "lost"


def test_a_hold_is_sure_for_less_than_the_lease_lasts() -> None:
    with zk_lease("key", LONG) as hold:
        assert LONG - 2 * PATIENCE < hold.valid_for() < LONG * (1 - DRIFT)


def test_a_waiter_gets_it_at_the_new_end_when_a_renewal_shortens(
    tree: Tree, make_owner: MakeOwner
) -> None:
    mine = zk_lease("key", LONG, owner="me")
    assert mine.acquire()
    waiting = make_owner().submit(zk_lease("key", LONG, owner="you", using="other").acquire)
    for _ in range(3):
        tree.await_watches(node_path(tree, "key"))
        mine.renew()
    tree.await_watches(node_path(tree, "key"))
    assert not waiting.done()
    mine.renew(0.05)
    assert waiting.result(PATIENCE)
    assert owner_of(tree, "key") == "you"
