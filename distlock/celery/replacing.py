"""Records replaced messages: those in whose place a newer one of the task was queued.

The worker that gets a replaced message must know of it, even if the newer one has begun or ended
meanwhile. So the record is a lease of its own, whose owner is the newer message's id. The worker
that drops the message releases the record.

The record is written *after* the publication of the newer message: a publisher that dies in between
loses neither. From the end of the older message's lease to then its fate is open, and a third lease
makes its worker wait (`deciding`).
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from celery import states
from celery.exceptions import TaskRevokedError

from distlock.exceptions import LockUnavailable
from distlock.lease.nodes import LONGEST
from distlock.lease.persistent import PersistentLease

from .once_lease import release
from .put_off import ignores_result, logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.lease.nodes import LeaseHolder

#: The seconds for which an older message waits for the publication of a newer one.
PUBLICATION: Final = 10.0


class Replaced(TaskRevokedError):  # type: ignore[misc]  # Celery has no types
    """The result of a task that never ran, since a newer message has replaced it.

    :ivar task_id: the id of the newer message
    """

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id

    def __str__(self) -> str:
        return f"replaced by the task {self.task_id}"


def record_of(
    task_id: str, using: str, *, newer: str | None = None, ttl: float = 1
) -> PersistentLease:
    """Return the lease that records the newer message that replaced the one of this id."""
    return PersistentLease(f"distlock.replaced:{task_id}", ttl, owner=newer, using=using)


def record(old: LeaseHolder, newer: str, *, ttl: float, using: str) -> None:
    """Record that a message was replaced, for as long as either of the two may come."""
    remaining = 0.0
    if old.expires is not None:
        remaining = (old.expires - datetime.now(timezone.utc)).total_seconds()
    lasting = min(max(ttl, remaining), LONGEST)
    try:
        record_of(old.owner_id, using, newer=newer, ttl=lasting).acquire(timeout=0)
    except LockUnavailable as error:
        logger.warning("%s was replaced by %s, and runs, too: %s", old.owner_id, newer, error)


@contextmanager
def deciding(task_id: str, *, by: str, using: str) -> Iterator[None]:
    """Let nobody else decide the fate of a message meanwhile: a newer one's publisher, or a worker.

    After `PUBLICATION` seconds the others go on: the publisher has died, or is slow. In the latter
    case the older message runs first.

    :param by: the id of the message whose publisher or worker asks
    """
    lease = PersistentLease(f"distlock.replacing:{task_id}", PUBLICATION, owner=by, using=using)
    lease.acquire(timeout=PUBLICATION)
    try:
        yield
    finally:
        release(lease)


def drop(task: Any, using: str) -> bool:
    """End the result of a task's request, and its dependants, and return whether it is replaced."""
    request = task.request
    newer = record_of(request.id, using).holder()
    if newer is None:
        return False
    logger.info("Replaced by %s; dropped.", newer.owner_id)
    task.backend.mark_as_failure(
        request.id,
        Replaced(newer.owner_id),
        request=request,
        store_result=not ignores_result(task, request),
        call_errbacks=False,
        state=states.REVOKED,
    )
    release(record_of(request.id, using, newer=newer.owner_id))
    return True
