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

#: The module of each public name.
_MODULES: Final = {
    "DeadlockDetected": "exceptions",
    "DistlockError": "exceptions",
    "FenceField": "fencing",
    "FencedModel": "fencing",
    "Hold": "owner.hold",
    "IncompatiblePeer": "exceptions",
    "Leader": "locks.leader",
    "LockBusy": "exceptions",
    "LockInTransaction": "exceptions",
    "LockKeyError": "exceptions",
    "LockLost": "exceptions",
    "LockUnavailable": "exceptions",
    "Mutex": "locks.mutex",
    "NotOwner": "exceptions",
    "StaleToken": "exceptions",
    "TooManyLocks": "exceptions",
    "escape_key": "keys.templates",
    "kazoo_client": "session.sharing",
    "lock_acquired": "signals",
    "lock_at_risk": "signals",
    "lock_contended": "signals",
    "lock_failed": "signals",
    "lock_lost": "signals",
    "lock_released": "signals",
    "lock_safe": "signals",
    "release_on_sigterm": "session.termination",
    "revoke": "locks.revocation",
    "zk_leader": "locks.leader",
    "zk_lease": "lease.persistent",
    "zk_lock": "locks.mutex",
    "zk_locked": "decorators",
    "zk_multilock": "locks.multilock",
    "zk_rwlock": "locks.rwlock",
    "zk_semaphore": "locks.semaphore",
    "zk_semaphore_mutex": "locks.semaphore",
}


if not TYPE_CHECKING:  # or a type checker would accept any misspelt name

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, so that unused ones cost nothing.

        The models could not be imported at once: Django imports this package before its apps are
        ready.
        """
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
