"""What cannot be taken together, and how a multi-lock says so."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from distlock import LockInTransaction, zk_lock, zk_multilock, zk_rwlock

pytestmark = pytest.mark.usefixtures("tree")


def test_nothing_is_no_multi_lock() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        zk_multilock()
    with pytest.raises(ValueError, match="at least one key"):
        zk_multilock(*())


@pytest.mark.parametrize(
    "wrong",
    [["a", "b"], {"a": 1}, 5, b"a", zk_rwlock("a")],
    ids=["list", "dict", "number", "bytes", "no side"],
)
def test_what_is_no_lock_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"Unpack a list with \*, and say .read or .write"):
        zk_multilock("a", wrong)


def test_a_lock_with_a_transaction_of_its_own_is_refused() -> None:
    """It would begin before the others are there."""
    with pytest.raises(ValueError, match="inside the block of all"):
        zk_multilock("a", zk_lock("b", atomic=True))


@pytest.mark.django_db(transaction=True)
def test_an_open_transaction_is_refused_and_one_inside_is_fine() -> None:
    with transaction.atomic(), pytest.raises(LockInTransaction):
        zk_multilock("a", "b").acquire()
    with zk_multilock("a", "b"), transaction.atomic():
        pass


def test_a_multi_lock_says_what_it_is() -> None:
    both = zk_multilock("a", zk_rwlock("b", using="other").read)
    assert repr(both) == (
        "zk_multilock(zk_lock('a', using='default'), zk_rwlock('b', using='other').read)"
    )
