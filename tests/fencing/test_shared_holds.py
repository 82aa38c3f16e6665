"""What a reader holds fences no write; what a writer that became a reader holds does.

Readers must not fence out co-readers, and a downgraded read keeps the write token.
"""

from __future__ import annotations

import pytest

from distlock import Hold, Mutex, StaleToken, zk_rwlock, zk_semaphore
from distlock.owner.owner import current
from tests.fencing.models import Stock

pytestmark = [
    pytest.mark.usefixtures("database", "distlock_settings"),
    pytest.mark.parametrize("vendor", ["sqlite"], indirect=True),
]


def hold_of(lock: Mutex) -> Hold:
    return current().held[lock._id].hold


def test_a_readers_hold_is_refused_before_anything_is_written(stock: Stock) -> None:
    with zk_rwlock("stock:lamp").read as hold:
        assert hold.shared
        stock.quantity = 1
        with pytest.raises(ValueError, match=r"'stock:lamp' is shared.*zk_rwlock\(key\).write"):
            stock.save(fence=hold)
        with pytest.raises(ValueError, match="is shared"):
            Stock.objects.fenced(hold)
    stock.refresh_from_db()
    assert (stock.quantity, stock.fence) == (10, 5)


def test_a_semaphores_hold_is_refused_with_a_lock_to_take(stock: Stock) -> None:
    with zk_semaphore("stock:lamp", 2) as hold, pytest.raises(ValueError, match=r"zk_lock\(\)"):
        stock.save(fence=hold)


def test_a_reader_that_was_the_writer_writes_with_the_writers_token(stock: Stock) -> None:
    lock = zk_rwlock("stock:lamp")
    with lock.write as write:
        Stock.objects.fenced(write).claim(sku="lamp")
        lock.read.acquire()
    read = hold_of(lock.read)
    stock.quantity = 9
    stock.save(fence=read)  # a token of its own would be higher, one more write than was locked
    lock.read.release()
    stock.refresh_from_db()
    assert (stock.quantity, stock.fence) == (9, write.token)


def test_a_reader_that_was_the_writer_is_refused_after_the_next_writer(stock: Stock) -> None:
    lock = zk_rwlock("stock:lamp")
    with lock.write:
        lock.read.acquire()
    read = hold_of(lock.read)
    lock.read.release()
    with lock.write as following:
        Stock.objects.fenced(following).claim(sku="lamp")
    with pytest.raises(StaleToken):
        stock.save(fence=read)
