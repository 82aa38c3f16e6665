"""Carries the lease of a queued-once task in the header of its message."""

from __future__ import annotations

from typing import Any, Final

from distlock.exceptions import LockKeyError, LockUnavailable, NotOwner
from distlock.lease.persistent import PersistentLease

from .put_off import logger

#: The message header with the key of the lease and its owner.
HEADER: Final = "distlock_once"
#: The header of a task that has begun before, and released its lease.
BEGUN: Final = {"begun": True}


def lease_of(request: Any, ttl: float | None = None) -> PersistentLease | None:
    """Return the lease of a message, for its own seconds or `ttl`, None if it has none."""
    header: Any = (request.headers or {}).get(HEADER)
    try:
        if header["owner"] != request.id:
            return None
        key, using, ttl = header["key"], header["using"], ttl or header["ttl"]
        return PersistentLease(key, ttl, owner=request.id, using=using)
    except (TypeError, KeyError, ValueError, LockKeyError):
        return None


def has_begun(request: Any) -> bool:
    """Return whether this run, or an earlier one of the task, has released its lease."""
    return bool(request.get("distlock_begun") or (request.headers or {}).get(HEADER) == BEGUN)


def warn_of_early_end(lease: PersistentLease) -> None:
    logger.warning(
        "%r had ended before the task: once_ttl is too short, or somebody has freed it.", lease
    )


def release(lease: PersistentLease, *, expected: bool = False) -> None:
    """Release a lease, and warn if it cannot be, or if it is gone and was `expected`."""
    try:
        lease.release()
    except NotOwner:
        if expected:
            warn_of_early_end(lease)
    except LockUnavailable as error:
        logger.warning("%r is left to its expiry: %s", lease, error)
