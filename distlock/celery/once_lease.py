"""Carries the lease of a queued-once task in the header of its message."""

from __future__ import annotations

from typing import Any, Final

from distlock.exceptions import LockKeyError, LockUnavailable, NotOwner
from distlock.lease.persistent import PersistentLease

from .runs import logger

#: The message header with the key of the lease and its owner.
HEADER: Final = "distlock_once"
#: The header of a task that has begun before, and released its lease.
BEGUN: Final = {"begun": True}


def header_of(lease: PersistentLease, task_id: str, ttl: float) -> dict[str, Any]:
    """Return the header of a message that carries a lease of `ttl` seconds."""
    return {"owner": task_id, "key": lease.key, "using": lease.using, "ttl": ttl}


def lease_of(request: Any, ttl: float | None = None) -> PersistentLease | None:
    """Return the lease of a message, None if it has none of its own.

    :param ttl: seconds; by default those of the message
    """
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
    """Release a lease.

    :param expected: whether its loss is worth a warning
    """
    try:
        lease.release()
    except NotOwner:
        if expected:
            warn_of_early_end(lease)
    except LockUnavailable as error:
        logger.warning("%r is left to its expiry: %s", lease, error)
