"""Distributed locks for Django on Apache ZooKeeper, Redis or PostgreSQL."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .decorators import zk_limited as zk_limited
    from .decorators import zk_locked as zk_locked
    from .exceptions import DeadlockDetected as DeadlockDetected
    from .exceptions import DistlockError as DistlockError
    from .exceptions import IncompatiblePeer as IncompatiblePeer
    from .exceptions import LimitReached as LimitReached
    from .exceptions import LockBusy as LockBusy
    from .exceptions import LockInTransaction as LockInTransaction
    from .exceptions import LockKeyError as LockKeyError
    from .exceptions import LockLost as LockLost
    from .exceptions import LockUnavailable as LockUnavailable
    from .exceptions import NotOwner as NotOwner
    from .exceptions import StaleToken as StaleToken
    from .exceptions import TooManyLocks as TooManyLocks
    from .fencing import FencedModel as FencedModel
    from .fencing import FenceField as FenceField
    from .keys.templates import escape_key as escape_key
    from .lease.persistent import zk_lease as zk_lease
    from .locks.leader import Leader as Leader
    from .locks.leader import zk_leader as zk_leader
    from .locks.multilock import zk_multilock as zk_multilock
    from .locks.mutex import Mutex as Mutex
    from .locks.mutex import zk_lock as zk_lock
    from .locks.revocation import revoke as revoke
    from .locks.rwlock import zk_rwlock as zk_rwlock
    from .locks.semaphore import zk_semaphore as zk_semaphore
    from .locks.semaphore import zk_semaphore_mutex as zk_semaphore_mutex
    from .owner.hold import Hold as Hold
    from .session.registry import kazoo_client as kazoo_client
    from .session.termination import release_on_sigterm as release_on_sigterm
    from .signals import lock_acquired as lock_acquired
    from .signals import lock_at_risk as lock_at_risk
    from .signals import lock_bypassed as lock_bypassed
    from .signals import lock_contended as lock_contended
    from .signals import lock_failed as lock_failed
    from .signals import lock_held_long as lock_held_long
    from .signals import lock_lost as lock_lost
    from .signals import lock_released as lock_released
    from .signals import lock_safe as lock_safe
    from .signals import lock_waited_long as lock_waited_long

#: The public names of each module.
_MODULES: Final = {
    "decorators": "zk_limited zk_locked",
    "exceptions": "DeadlockDetected DistlockError IncompatiblePeer LimitReached LockBusy "
    "LockInTransaction LockKeyError LockLost LockUnavailable NotOwner StaleToken TooManyLocks",
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
    "session.registry": "kazoo_client",
    "session.termination": "release_on_sigterm",
    "signals": "lock_acquired lock_at_risk lock_bypassed lock_contended lock_failed lock_held_long "
    "lock_lost lock_released lock_safe lock_waited_long",
}

# Type checkers take the names from the aliases above.
__all__ = sorted(" ".join(_MODULES.values()).split())  # noqa: PLE0605


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
