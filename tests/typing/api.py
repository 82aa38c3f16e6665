"""Code as a user writes it: it must type-check under mypy strict, and what is wrong must not.

`make types` reads this file with the rest of the tree. Each ``type: ignore`` stands on a mistake
that the type checker has to find: where it no longer does, the ignore is unused, which is an error.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import models
from django.http import HttpRequest, HttpResponse
from django.test import TestCase
from django.utils.decorators import method_decorator
from django.views import View
from typing_extensions import assert_type

from distlock import (
    DistlockError,
    FencedModel,
    Hold,
    Leader,
    LockBusy,
    LockLost,
    LockUnavailable,
    Mutex,
    StaleToken,
    kazoo_client,
    lock_acquired,
    revoke,
    zk_leader,
    zk_lease,
    zk_limited,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.exceptions import LostHold
from distlock.fencing import FencedQuerySet
from distlock.keys.znodes import Participant
from distlock.lease.hold import LeaseHold
from distlock.testing import (
    CapturedLocks,
    DistlockTestCase,
    assert_locked,
    captured_locks,
    expire_session,
    hold,
    memory_zookeeper,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from distlock import zk_lokc  # type: ignore[attr-defined]  # noqa: F401 - a misspelt name
    from distlock.testing import assert_loked  # type: ignore[attr-defined]  # noqa: F401

# --- decorated functions keep their signature ----------------------------------------------------


@zk_locked("stock:<sku>", timeout=2)
def deduct(sku: str, amount: int = 1, *, dry: bool = False) -> int:
    return 0 if dry else amount


@zk_locked("stock:<sku>", timeout=timedelta(seconds=2), on_busy="skip")
async def adeduct(sku: str, amount: int = 1) -> int:
    return amount


@zk_locked("stock:<sku>", on_busy=lambda busy, request, sku: HttpResponse(status=409))
def buy(request: HttpRequest, sku: str) -> HttpResponse:
    return HttpResponse(sku)


@zk_locked("stock:<sku>", handoff=8, fair=True, using="inventory", cancel_on_loss=True)
async def abuy(request: HttpRequest, sku: str) -> HttpResponse:
    return HttpResponse(sku)


@zk_limited({"reports": 40, "stock:<sku>": len}, max_waiters=10)
def report(sku: str) -> int:
    return len(sku)


class Warehouse:
    name = "north"

    @zk_locked("warehouse:<self.name>", atomic=True)
    def count(self, shelf: str) -> list[int]:
        return [len(shelf)]

    @classmethod
    @zk_locked("warehouses")
    def all(cls) -> list[Warehouse]:
        return [cls()]


@method_decorator(zk_locked("stock:<sku>"), name="dispatch")
class Buy(View):
    def post(self, request: HttpRequest, sku: str) -> HttpResponse:
        return HttpResponse(sku)


def calls_of_decorated_functions() -> None:
    assert_type(deduct("42", 2, dry=True), int)
    assert_type(report("42"), int)
    assert_type(buy(HttpRequest(), sku="42"), HttpResponse)
    assert_type(Warehouse().count("a"), list[int])
    assert_type(Warehouse.all(), list[Warehouse])
    deduct(42)  # type: ignore[arg-type]
    deduct()  # type: ignore[call-arg]
    deduct("42", colour="red")  # type: ignore[call-arg]
    Warehouse().count()  # type: ignore[call-arg]
    answer: str = deduct("42")  # type: ignore[assignment]
    del answer


async def calls_of_decorated_coroutines() -> None:
    assert_type(await adeduct("42", amount=3), int)
    assert_type(await abuy(HttpRequest(), "42"), HttpResponse)
    waiting: Callable[[str], Coroutine[Any, Any, int]] = adeduct
    await adeduct(b"42")  # type: ignore[arg-type]
    number: int = adeduct("42")  # type: ignore[assignment]
    del waiting, number


zk_locked(42)  # type: ignore[arg-type]
zk_locked("report", on_busy="wiat")  # type: ignore[arg-type]
zk_locked("report", 2)  # type: ignore[call-arg]
zk_locked("report", tiemout=2)  # type: ignore[call-arg]
zk_locked("report", timeout="2")  # type: ignore[arg-type]
zk_locked("report", busy_pause="2")  # type: ignore[arg-type]


# --- the mutex and its hold ----------------------------------------------------------------------


def locks() -> None:
    lock = zk_lock("stock:42", timeout=0.5, on_revoke=lambda asked: assert_type(asked, Mutex))
    assert_type(lock, Mutex)
    assert_type(lock.acquire(blocking=False), bool)
    assert_type(lock.acquire(timeout=None), bool)
    assert_type(lock.release(), None)
    assert_type(lock.held, bool)
    assert_type(lock.locked(), bool)
    assert_type(revoke(lock.holder()), bool)
    for one in lock.participants():
        assert_type(one, Participant)
    with lock as mine:
        assert_type(mine, Hold)
        assert_type(mine.key, str)
        assert_type(mine.token, int)
        assert_type(mine.acquired_at, datetime)
        assert_type(mine.lost, bool)
        assert_type(mine.valid_for(), float)
        assert_type(mine.at_risk, bool)
        assert_type(mine.lost_reason, str)
        mine.check()
        mine.verify(timeout=2)
        mine.token = "7"  # type: ignore[assignment]
        mine.lost = True  # type: ignore[misc]
    lock.acquire(waiting=True)  # type: ignore[call-arg]
    lock.acquire(timeout="2")  # type: ignore[arg-type]
    zk_lock(b"stock")  # type: ignore[arg-type]
    zk_lock("stock", 2)  # type: ignore[call-arg]
    zk_lock("stock", handoff="8")  # type: ignore[arg-type]
    zk_lock("stock", max_hold=timedelta(minutes=5))
    zk_lock("stock", max_hold="5")  # type: ignore[arg-type]
    zk_lock("stock", timeout=None)
    zk_lock("stock", cancel_on_loss="yes")  # type: ignore[arg-type]
    revoke("stock")  # type: ignore[arg-type]


async def async_locks() -> None:
    lock = zk_lock("report")
    assert_type(await lock.aacquire(timeout=1), bool)
    await lock.arelease()
    async with lock as mine:
        assert_type(mine, Hold)
    async with zk_rwlock("prices", max_hold=60, cancel_on_loss=True).read as reading:
        assert_type(reading.shared, bool)
    async with zk_multilock("a", "b") as holds:
        assert_type(holds, tuple[Hold, ...])
    async with zk_semaphore("mail", 5), zk_semaphore_mutex("import"):
        pass
    async with zk_lease("export", ttl=600) as lease:
        assert_type(lease.expires, datetime)


def errors() -> str:
    try:
        deduct("42")
    except LockBusy as busy:
        assert_type(busy.holder, Participant | None)
        assert_type(busy.retry_after, float)
        return f"{busy.key} after {busy.waited:.1f} s"
    except LockUnavailable as unavailable:
        return unavailable.key
    except LockLost as lost:
        assert_type(lost.hold, LostHold | None)
        assert_type(lost.reason, str)
    except DistlockError:
        raise
    return ""


# --- the other recipes ---------------------------------------------------------------------------


def recipes() -> None:
    prices = zk_rwlock("prices", timeout=2)
    with prices.write as writing, prices.read:
        assert_type(writing, Hold)
    zk_rwlock("prices").raed  # type: ignore[attr-defined]  # noqa: B018

    mail = zk_semaphore("mail", 5)
    assert_type(mail.acquire(leases=2), bool)
    mail.release(2)
    assert_type(mail.held, int)
    mail.limit = 7
    with mail as one:
        assert_type(one, Hold)
    zk_semaphore("mail")  # type: ignore[call-arg]
    zk_semaphore("mail", "5")  # type: ignore[arg-type]

    with zk_multilock("a", zk_lock("b"), prices.read, mail, zk_multilock("c"), timeout=2) as holds:
        assert_type(holds, tuple[Hold, ...])
    zk_multilock(1)  # type: ignore[arg-type]

    lease = zk_lease("export", ttl=timedelta(minutes=10), owner="task-7")
    assert_type(lease.acquire(), bool)
    assert_type(lease.renew(), LeaseHold)
    lease.release()
    zk_lease("export")  # type: ignore[call-arg]
    zk_lease("export", ttl="600")  # type: ignore[arg-type]


def ask() -> None:
    kazoo_client("inventory").exists("/app")
    kazoo_client(using=1)  # type: ignore[arg-type]


def lead(leader: Leader) -> None:
    def work(leading: Hold) -> None:
        while leader.stay(60):
            leading.check()

    leader.run(work)
    leader.run(lambda: None)  # type: ignore[misc, arg-type]


def beat() -> None:
    leader = zk_leader("beat")
    lead(leader)
    assert_type(leader.is_leader, bool)
    assert_type(leader.leader(), Participant | None)


# --- signals, fenced models, tests ---------------------------------------------------------------


def note(sender: type, key: str, hold: Hold, waited: float, **_: Any) -> None: ...


lock_acquired.connect(note)
lock_acquired.disconnect(note)


class Stock(FencedModel):
    sku = models.CharField(max_length=20)
    quantity = models.IntegerField(default=0)

    # Said for the type checker, which does not see the app.
    objects: ClassVar[FencedQuerySet[Stock]] = FencedQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        app_label = "typing_api"

    def __str__(self) -> str:
        return self.sku


def fenced() -> None:
    with zk_lock("stock:42") as mine:
        stock = Stock.objects.fenced(mine).claim(sku="42")
        assert_type(stock, Stock)
        assert_type(stock.fence, int)
        stock.quantity -= 1
        try:
            stock.save(fence=mine)
        except StaleToken:
            stock.save(fence=mine.token)
        assert_type(Stock.objects.fenced(mine).update(quantity=0), int)
        stock.save(fence="7")  # type: ignore[arg-type]
        Stock.objects.fenced(None)  # type: ignore[arg-type]


async def afenced(stock: Stock, mine: Hold) -> None:
    await stock.asave(fence=mine)


class BuyTests(DistlockTestCase, TestCase):
    def check_busy(self) -> None:
        with hold("stock:42", by="the warehouse", kind="write") as other, captured_locks() as seen:
            assert_type(seen, CapturedLocks)
            assert_type(seen.keys("busy"), list[str])
            assert_locked("stock:42")
            other.release()
        expire_session()
        hold("stock:42", kind="raed")  # type: ignore[arg-type]
        assert_locked(42)  # type: ignore[arg-type]


@memory_zookeeper()
def without_a_server(sku: str) -> int:
    return deduct(sku)


without_a_server(42)  # type: ignore[arg-type]
