"""A lock is taken before the transaction, not inside it (promise 9).

The block that ``TestCase`` opens does not count, and ``on_commit`` is no release hook.
"""

from __future__ import annotations

import asyncio

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import TestCase
from pytest_django import Settings

from distlock import LockInTransaction, zk_lock, zk_locked
from tests.kit.helpers import eventually
from tests.testproject.elsewhere import in_line

pytestmark = pytest.mark.usefixtures("distlock_settings")
with_database = pytest.mark.django_db(transaction=True)


def in_transaction() -> bool:
    return connection.in_atomic_block


@with_database
def test_a_first_acquire_inside_a_transaction_raises_and_leaves_no_node() -> None:
    lock = zk_lock("stock:42")
    with transaction.atomic():
        with pytest.raises(LockInTransaction):
            lock.acquire()
        assert not lock.held
    assert in_line("stock:42") == 0


@with_database
def test_the_message_shows_the_right_order() -> None:
    with transaction.atomic(), pytest.raises(LockInTransaction) as raised:
        zk_lock("stock:42").acquire()
    assert "with zk_lock('stock:42', until='commit'):" in str(raised.value)
    assert "database 'default'" in str(raised.value)
    assert "\N{REPLACEMENT CHARACTER}" not in str(raised.value)


@with_database
def test_an_owner_that_holds_the_lock_enters_again_inside_the_transaction() -> None:
    with zk_lock("stock:42") as outer, transaction.atomic(), zk_lock("stock:42") as inner:
        assert inner is outer
        inner.verify()


@with_database
def test_a_site_may_allow_it(distlock_settings: Settings) -> None:
    options = distlock_settings.DISTLOCK["default"]
    distlock_settings.DISTLOCK = {"default": {**options, "IN_TRANSACTION": "allow"}}
    with transaction.atomic(), zk_lock("stock:42") as hold:
        hold.verify()


@with_database
def test_a_transaction_without_autocommit_counts_from_its_first_write() -> None:
    transaction.set_autocommit(False)
    try:
        with zk_lock("stock:42") as hold:
            hold.verify()
        Group.objects.create(name="packers")
        with pytest.raises(LockInTransaction):
            zk_lock("stock:42").acquire()
        transaction.commit()
        with zk_lock("stock:42") as hold:
            hold.verify()
    finally:
        transaction.set_autocommit(True)


@with_database
def test_an_inner_atomic_of_the_same_lock_is_a_savepoint_and_both_end_in_order() -> None:
    with zk_lock("stock:42", atomic=True):
        with pytest.raises(ZeroDivisionError), zk_lock("stock:42", atomic=True):
            raise ZeroDivisionError
        assert in_transaction()
        assert not connection.needs_rollback
        assert zk_lock("stock:42").held
    assert not in_transaction()
    eventually(lambda: in_line("stock:42") == 0)


@with_database
def test_without_atomic_a_function_gets_no_transaction() -> None:
    @zk_locked("stock:42")
    def deduct() -> bool:
        return in_transaction()

    assert deduct() is False


def test_atomic_is_refused_in_async_code_where_django_has_no_transactions() -> None:
    async def deduct() -> None:
        async with zk_lock("stock:42", atomic=True):
            raise AssertionError("never here")

    with pytest.raises(TypeError, match="atomic"):
        asyncio.run(deduct())
    assert in_line("stock:42") == 0


@pytest.mark.usefixtures("distlock_settings")
class InATestCase(TestCase):
    """Django's own class, whose every test runs inside a transaction."""

    def test_its_own_transaction_does_not_count(self) -> None:
        assert in_transaction()
        with zk_lock("stock:42") as hold:
            hold.verify()

    def test_a_transaction_of_the_test_does_count(self) -> None:
        with transaction.atomic(), pytest.raises(LockInTransaction):
            zk_lock("stock:42").acquire()

    def test_the_lock_is_released_though_the_transaction_is_never_committed(self) -> None:
        with zk_lock("stock:42", atomic=True):
            assert in_line("stock:42") == 1
        eventually(lambda: in_line("stock:42") == 0)
