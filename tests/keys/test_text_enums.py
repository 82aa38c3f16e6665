"""A text enum is the key that it equals: the same node, and the same hold.

From Python 3.11 on, a ``class Key(str, Enum)`` formats as ``Key.STOCK``, and its hash is never that
of its value.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

import pytest

from distlock import (
    zk_leader,
    zk_lease,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.keys.templates import KeyTemplate
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE

pytestmark = pytest.mark.usefixtures("distlock_settings")


class Key(str, Enum):
    STOCK = "stock:42"


NewLock = Callable[[str], Any]

EXCLUSIVE: dict[str, NewLock] = {
    "mutex": zk_lock,
    "unfair": lambda key: zk_lock(key, fair=False),
    "handoff": lambda key: zk_lock(key, handoff=2),
    "write": lambda key: zk_rwlock(key).write,
    "semaphore": lambda key: zk_semaphore(key, 1),
    "semaphore-mutex": zk_semaphore_mutex,
    "leader": zk_leader,
    "multilock": zk_multilock,
    "lease": lambda key: zk_lease(key, 60, owner=key),
}
exclusive = pytest.mark.parametrize("new_lock", EXCLUSIVE.values(), ids=EXCLUSIVE.keys())


def is_free(lock: Any) -> bool:
    """Whether another thread can take the lock, which it releases."""

    def take() -> bool:
        taken: bool = lock.acquire(timeout=0)
        if taken:
            lock.release()
        return taken

    with ThreadPoolExecutor(1) as other:
        return other.submit(take).result(PATIENCE)


@pytest.mark.parametrize(("held", "wanted"), [(Key.STOCK, "stock:42"), ("stock:42", Key.STOCK)])
@exclusive
def test_it_excludes_the_text_that_it_equals(new_lock: NewLock, held: str, wanted: str) -> None:
    if new_lock is EXCLUSIVE["lease"]:
        holder, rival = zk_lease(held, 60, owner="a"), zk_lease(wanted, 60, owner="b")
    else:
        holder, rival = new_lock(held), new_lock(wanted)
    assert holder.acquire()
    assert not is_free(rival)
    holder.release()
    eventually(lambda: is_free(rival), PATIENCE)


@exclusive
def test_what_was_acquired_by_one_is_released_by_the_other(new_lock: NewLock) -> None:
    assert new_lock(Key.STOCK).acquire()
    new_lock("stock:42").release()
    eventually(lambda: is_free(new_lock("stock:42")), PATIENCE)


def test_a_hold_names_the_key_as_plain_text() -> None:
    with zk_lock(Key.STOCK) as hold:
        assert type(hold.key) is str
        assert f"{hold.key}" == "stock:42"


@pytest.mark.parametrize(
    ("template", "values", "key"),
    [
        ("<key>", {"key": Key.STOCK}, "stock:42"),
        ("shop:<key>", {"key": Key.STOCK}, "shop:stock:42"),
        (Key.STOCK, {}, "stock:42"),
    ],
)
def test_a_template_is_filled_with_its_value(
    template: str, values: dict[str, Any], key: str
) -> None:
    filled = KeyTemplate(template).fill(values)
    assert (type(filled), filled) == (str, key)


def test_a_decorated_function_takes_the_lock_of_its_value() -> None:
    @zk_locked("<key>", timeout=0)
    def is_busy(key: str) -> bool:
        return not is_free(zk_lock(str.__str__(key)))

    assert is_busy(Key.STOCK)
