"""Distributed locks for Django on Apache ZooKeeper."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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
        TooManyLocks,
    )
    from .fencing import FencedModel, FenceField
    from .keys.templates import escape_key
    from .lease.persistent import zk_lease
    from .locks.leader import Leader, zk_leader
    from .locks.multilock import zk_multilock
    from .locks.mutex import Mutex, zk_lock
    from .locks.revocation import revoke
    from .locks.rwlock import zk_rwlock
    from .locks.semaphore import zk_semaphore, zk_semaphore_mutex
    from .owner.hold import Hold
    from .session.sharing import kazoo_client
    from .session.termination import release_on_sigterm
    from .signals import (
        lock_acquired,
        lock_at_risk,
        lock_contended,
        lock_failed,
        lock_lost,
        lock_released,
        lock_safe,
    )

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
    "TooManyLocks",
    "escape_key",
    "kazoo_client",
    "lock_acquired",
    "lock_at_risk",
    "lock_contended",
    "lock_failed",
    "lock_lost",
    "lock_released",
    "lock_safe",
    "release_on_sigterm",
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

#: The public names of each module.
_MODULES: Final = {
    "decorators": "zk_locked",
    "exceptions": "DeadlockDetected DistlockError IncompatiblePeer LockBusy LockInTransaction "
    "LockKeyError LockLost LockUnavailable NotOwner StaleToken TooManyLocks",
    "fencing": "FencedModel FenceField",
    "keys.templates": "escape_key",
    "lease.persistent": "zk_lease",
    "locks.leader": "Leader zk_leader",
    "locks.multilock": "zk_multilock",
    "locks.mutex": "Mutex zk_lock",
    "locks.revocation": "revoke",
    "locks.rwlock": "zk_rwlock",
    "locks.semaphore": "zk_semaphore zk_semaphore_mutex",
    "owner.hold": "Hold",
    "session.sharing": "kazoo_client",
    "session.termination": "release_on_sigterm",
    "signals": "lock_acquired lock_at_risk lock_contended lock_failed lock_lost lock_released "
    "lock_safe",
}


if not TYPE_CHECKING:  # or a type checker would accept any misspelt name

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, so that unused ones cost nothing.

        The models could not be imported at once: Django imports this package before its apps are
        ready.
        """
        for module, names in _MODULES.items():
            if name in names.split():
                value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
