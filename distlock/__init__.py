"""Distributed locks for Django on Apache ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .decorators import zk_locked
from .exceptions import (
    DeadlockDetected,
    DistlockError,
    IncompatiblePeer,
    LockBusy,
    LockInTransaction,
    LockKeyError,
    LockLost,
    LockUnavailable,
    NotOwner,
    StaleToken,
)
from .hold import Hold
from .leader import Leader, zk_leader
from .leases import zk_lease
from .multilock import zk_multilock
from .mutex import Mutex, zk_lock
from .revocation import revoke
from .rwlock import zk_rwlock
from .semaphore import zk_semaphore
from .semaphore_mutex import zk_semaphore_mutex
from .signals import lock_acquired, lock_contended, lock_failed, lock_lost, lock_released

if TYPE_CHECKING:
    from .fencing import FencedModel, FenceField

__all__ = [
    "DeadlockDetected",
    "DistlockError",
    "FenceField",
    "FencedModel",
    "Hold",
    "IncompatiblePeer",
    "Leader",
    "LockBusy",
    "LockInTransaction",
    "LockKeyError",
    "LockLost",
    "LockUnavailable",
    "Mutex",
    "NotOwner",
    "StaleToken",
    "lock_acquired",
    "lock_contended",
    "lock_failed",
    "lock_lost",
    "lock_released",
    "revoke",
    "zk_leader",
    "zk_lease",
    "zk_lock",
    "zk_locked",
    "zk_multilock",
    "zk_rwlock",
    "zk_semaphore",
    "zk_semaphore_mutex",
]


def __getattr__(name: str) -> Any:
    """Import the models late: Django's app registry is not ready when it imports this package."""
    if name in ("FenceField", "FencedModel"):
        from . import fencing  # noqa: PLC0415

        return getattr(fencing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
