"""One call of each recipe, which acquires and releases; and what may be left after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any

from distlock import (
    LockBusy,
    zk_leader,
    zk_lease,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.lease.hold import _blocks
from distlock.lease.persistent import PersistentLease
from distlock.locks import held_permits
from distlock.locks.leader import Leader
from distlock.locks.lock import Attempted
from distlock.locks.multilock import MultiLock
from distlock.locks.mutex import Mutex
from distlock.locks.semaphore import Permits
from distlock.owner.owner import current
from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries
from tests.kit.tools import PATIENCE, Tree, forgets_all

KEY = "key"
TTL = 600.0

#: Makes the lock of each recipe, with options.
RECIPES: dict[str, Callable[..., Any]] = {
    "mutex": lambda **how: zk_lock(KEY, **how),
    "unfair": lambda **how: zk_lock(KEY, fair=False, **how),
    "handoff": lambda **how: zk_lock(KEY, handoff=3, **how),
    "read": lambda **how: zk_rwlock(KEY, **how).read,
    "write": lambda **how: zk_rwlock(KEY, **how).write,
    "semaphore": lambda **how: zk_semaphore(KEY, 2, **how),
    "semaphore mutex": lambda **how: zk_semaphore_mutex(KEY, **how),
    "multilock": lambda **how: zk_multilock(KEY, zk_semaphore("key-2", 1), **how),
    "lease": lambda **how: zk_lease(KEY, TTL, **how),
    "leader": lambda **how: zk_leader(KEY, **how),
}

#: Made once, as a module has it: what one call leaves in it, the next one finds.
OWNED = zk_lease(KEY, TTL, owner="me", timeout=0)

#: Before its first line no ``__exit__`` written in Python can do anything (CPython 74174).
EXITS: set[CodeType] = {
    kind.__exit__.__code__
    for kind in (Mutex, MultiLock, Permits, Leader, PersistentLease, Attempted)
}


def block_of(recipe: str, timeout: float = 5.0) -> Callable[[], None]:
    """Return a call that enters and leaves a block of a recipe."""

    def block() -> None:
        with suppress(LockBusy), RECIPES[recipe](timeout=timeout):
            pass

    return block


def attempt_of(recipe: str) -> Callable[[], None]:
    """Return a call that enters and leaves a block of an attempt at a recipe."""

    def attempt() -> None:
        with RECIPES[recipe](timeout=5).attempt():
            pass

    return attempt


def without_a_block(recipe: str = "mutex", **how: Any) -> None:
    lock = RECIPES[recipe](timeout=0, **how)
    try:
        if lock.acquire():
            lock.release()
    except BaseException:
        if lock.held:  # it never began, or nobody knows: a release can be repeated
            with suppress(RuntimeError):
                lock.release()
        raise


def block_in_block() -> None:
    with suppress(LockBusy), zk_lock(KEY, timeout=0), zk_lock(KEY):
        pass


def lease_in_lease() -> None:
    with OWNED, zk_lease(KEY, TTL, owner="me") as hold:
        assert hold.valid_for() > 0


@zk_locked(KEY, timeout=0, on_busy="skip")
def decorated() -> None:
    pass


def read_inside_write() -> None:
    lock = zk_rwlock(KEY, timeout=0)
    with suppress(LockBusy), lock.write, lock.read:
        pass


def several() -> None:
    """Of two kinds, so that both kinds of what a multi-lock takes are there."""
    both = zk_multilock(zk_rwlock(KEY).write, zk_semaphore("key-2", 1), timeout=0)
    if both.acquire():
        try:
            both.release()
        except BaseException:
            if zk_rwlock(KEY).write.held:  # it never began: a release can be repeated
                both.release()
            raise


def parents(tree: Tree) -> None:
    """Make the parents of all recipes' nodes, and keep the server from removing them."""
    for path in (
        tree.path(KEY),
        tree.path("key-2"),
        *(f"{tree.path(key)}/{part}" for key in (KEY, "key-2") for part in ("locks", "leases")),
        f"{tree.namespace}/%leader:{KEY}",
    ):
        tree.client.ensure_path(path)
        if not path.endswith("/leases"):  # all that is there counts as taken
            tree.client.ensure_path(f"{path}/keeps-the-parents")


def nothing_is_left(tree: Tree) -> None:
    """Wait until the tree and this process have nothing of any recipe."""
    session = session_for()
    assert not current().held
    assert not any(held_permits._held.values())
    assert not _blocks
    assert not OWNED.held
    lease = zk_lease(KEY, TTL, using="other")
    eventually(lambda: lease.holder() is None, PATIENCE, "a lease that was given back")
    eventually(lambda: not beneficiaries(session), PATIENCE, "nobody who needs the session")
    eventually(lambda: not everything(tree), PATIENCE, lambda: f"no node of {everything(tree)}")
    forgets_all(session)


def everything(tree: Tree) -> list[str]:
    """The paths of all lock nodes of all recipes: the ephemeral ones, in one request."""
    lines = tree.client.command(b"dump").splitlines()
    return [path for line in lines if (path := line.strip()).startswith(f"{tree.namespace}/")]
