"""Tasks that are queued once: unique from being published to their end.

::

    @shared_task(base=QueuedOnce, once_ttl=timedelta(hours=2))
    @zk_locked("report:<day>")
    def report(day): ...

A lease (`leases`) under the key of the task's lock belongs to the task's id, from `apply_async` to
the end of its last run. It outlives the publisher and the worker, and ends by itself where the task
was lost. Source: celery-once's ``QueueOnce``, procrastinate's ``queueing_lock``.
"""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any, ClassVar

from celery.contrib.django.task import DjangoTask
from celery.utils import uuid

from .exceptions import LockBusy, LockUnavailable, NotOwner
from .leases import PersistentLease
from .task_runs import locks_of, logger


class QueuedOnce(DjangoTask):  # type: ignore[misc]  # Celery has no types
    """The base of a locked task that is not queued again while it is queued or runs.

    ``delay()`` and ``apply_async()`` return the `AsyncResult` of the first one then.
    """

    abstract = True
    #: How long a task may take from its publication, or its last retry, to its end; then it counts
    #: as lost, and another may be queued. Seconds or a timedelta.
    once_ttl: ClassVar[float | timedelta] = 3600.0

    def apply_async(
        self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any
    ) -> Any:
        """Publish the task, or return the result of the one that is queued or runs.

        :raises LockBusy: one is, and the caller needs one with this `task_id`, as chains do
        :raises LockUnavailable: nobody knows whether one is
        """
        if self.app.conf.task_always_eager:
            return super().apply_async(args, kwargs, task_id=task_id, **options)
        own = task_id or uuid()
        lease = self._lease(tuple(args or ()), dict(kwargs or {}), own)
        # Its own retries renew it.
        while not lease.acquire(timeout=0):
            first = lease.holder()
            if first is None:  # it has ended just now
                continue
            if task_id is None and first.owner_id:
                return self.AsyncResult(first.owner_id)
            raise LockBusy(
                f"{self.name} is queued or runs already: {first}. A chain, group or chord cannot "
                "wait for that one; queue it by itself.",
                key=lease.key,
                using=lease.using,
            )
        try:
            return super().apply_async(args, kwargs, task_id=own, **options)
        except BaseException:
            self._release(lease)
            raise

    def after_return(self, *ended: Any) -> None:
        """Let the next one be queued. Celery does not call this for a task that comes again."""
        super().after_return(*ended)
        request = self.request
        if not request.is_eager:
            self._release(self._lease(tuple(request.args), dict(request.kwargs), request.id))

    def _lease(self, args: tuple[Any, ...], kwargs: dict[str, Any], owner: str) -> PersistentLease:
        locked = locks_of(self)
        if not locked:
            raise TypeError(
                f"{self.name} has the base QueuedOnce and no lock, whose key says what is to be "
                'queued once. Write @zk_locked("…") below its decorator.'
            )
        run = getattr(self, "_orig_run", self.run)  # autoretry_for puts a function around it
        bound = (self,) if inspect.ismethod(run) else ()
        key = locked[0].key(bound + args, kwargs)
        using = locked[0].make_mutex.keywords["using"]
        return PersistentLease(key, self.once_ttl, owner=owner, using=using)

    def _release(self, lease: PersistentLease) -> None:
        try:
            lease.release()
        except NotOwner:
            logger.warning("%r had ended before the task: once_ttl is too short.", lease)
        except LockUnavailable as error:
            logger.warning("%r is left to its expiry: %s", lease, error)
