"""A hold leaves nothing for the garbage collector, which some sites switch off."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from distlock import zk_lock, zk_rwlock, zk_semaphore
from distlock.session.registry import session_for
from tests.contenders.tools import KEY
from tests.kit.helpers import eventually, without_garbage_collection
from tests.kit.tools import PATIENCE, forgets_all

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("patient", "tree")

PACKAGES = tuple(f"distlock.{name}" for name in ("contenders", "locks", "owner", "queue"))
LOCKS: dict[str, Callable[[], Any]] = {
    "mutex": lambda: zk_lock(KEY),
    "handoff": lambda: zk_lock(KEY, handoff=3),
    "reader": lambda: zk_rwlock(KEY).read,
    "writer": lambda: zk_rwlock(KEY).write,
    "semaphore": lambda: zk_semaphore(KEY, 2),
}


def ours() -> Counter[str]:
    """The objects that a hold consists of, by their classes."""
    classes = [type(one) for one in gc.get_objects()]
    # Of some classes elsewhere, `__module__` is a property of their objects.
    return Counter(one.__name__ for one in classes if str(one.__module__).startswith(PACKAGES))


@pytest.mark.parametrize("kind", LOCKS)
def test_a_hold_leaves_no_cycle(kind: str) -> None:
    def hold() -> None:
        with LOCKS[kind]():
            pass
        forgets_all(session_for())

    hold()  # what is made once is there now
    gc.collect()
    with without_garbage_collection():
        before = ours()
        hold()
        eventually(lambda: not ours() - before, PATIENCE, lambda: f"left: {ours() - before}")
