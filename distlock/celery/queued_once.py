"""Provides tasks that are queued once: unique from their publication to their end.

::

    @shared_task(base=QueuedOnce, once_ttl=timedelta(hours=2))
    @zk_locked("report:<day>")
    def report(day): ...

A lease (`lease.persistent`) belongs to the task's id, from `apply_async` to the end of the last
run. Its key is the task's name and the key of the task's lock. The message carries it, since a
worker cannot always compute it again. The process that ends a task releases the lease, or the
worker if that has died, or the next publisher if the result backend knows that the task has ended.

Under ``on_duplicate="replace"`` a second lease records that a newer message, its owner, replaces an
older one, whose worker must know of it even if the newer one has ended meanwhile. It lasts for
`PUBLICATION` seconds until the newer message is published, and the worker waits for that: a
publisher that dies in between loses neither.

Source: celery-once's ``QueueOnce``, procrastinate's ``queueing_lock``.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar, Final, Literal, get_args

from celery import current_task, signals, states
from celery.app.task import Context
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, Reject, TaskRevokedError, WorkerLostError
from celery.utils import uuid
from celery.utils.functional import maybe_list
from celery.utils.time import maybe_iso8601, maybe_make_aware

from distlock.decorators import Locked
from distlock.exceptions import LockBusy, LockKeyError, LockLost, LockUnavailable, NotOwner
from distlock.lease.nodes import LONGEST, LeaseHolder, check_ttl
from distlock.lease.persistent import PersistentLease
from distlock.locks.revocation import break_node

from .put_off import ONCE, ignores_result, logger, state_of
from .runs import CopyDropped, key_of_call, locks_of

OnDuplicate = Literal["return", "raise", "replace"]

#: The header of a task that has begun before, and released its lease.
BEGUN: Final = {"begun": True}
#: The seconds for which an older message waits for the publication of a newer one. If that comes
#: later, the older one runs first.
PUBLICATION: Final = 10.0
#: The seconds between two looks whether it is published, or whether a lease is released.
LOOK_SECONDS: Final = 0.1
#: The seconds by which a task may begin after its expiry, by another host's clock.
LATE: Final = 5.0


class AlreadyQueued(LockBusy):
    """The task is queued or runs already.

    :ivar task_id: the id of that task
    """

    def __init__(self, message: str = "", *, task_id: str = "", **facts: Any) -> None:
        super().__init__(message, **facts)
        self.task_id = task_id


class Replaced(TaskRevokedError):  # type: ignore[misc]  # Celery has no types
    """The result of a task that never ran, since a newer message has replaced it.

    :ivar task_id: the id of the newer message
    """

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id

    def __str__(self) -> str:
        return f"replaced by the task {self.task_id}"


class QueuedOnce(DjangoTask):  # type: ignore[misc]  # Celery has no types
    """The base of a locked task that is not queued again while it is queued or runs.

    ``delay()`` and ``apply_async()`` return the `AsyncResult` of the first one then; see
    `is_duplicate`.
    """

    abstract = True
    Request = f"{__package__}.once_requests:OnceRequest"
    #: The time that a task may take from its publication, its ``eta`` or its last retry to its end.
    #: After it the task counts as lost, and another may be queued. Seconds or a timedelta.
    once_ttl: ClassVar[float | timedelta] = 3600.0
    #: The answer to a duplicate: ``"return"`` the result of the first task, ``"raise"``
    #: `AlreadyQueued`, or ``"replace"`` the first task, which then never runs and ends as REVOKED,
    #: with `Replaced`. This implies `unlock_at_start`: a running task is not replaced.
    on_duplicate: ClassVar[OnDuplicate] = "return"
    #: Whether the next task may be queued once a run has its lock and begins. A delayed task is
    #: still queued; one that has begun and retries is not.
    unlock_at_start: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.on_duplicate not in get_args(OnDuplicate):
            raise ValueError(
                f"on_duplicate cannot be {cls.on_duplicate!r:.80}: write one of "
                f"{', '.join(map(repr, get_args(OnDuplicate)))}."
            )
        if not callable(cls.replace):
            raise TypeError(
                "replace is a method of Celery's tasks and no option. To let a newer message "
                'replace the one that is queued, write on_duplicate="replace".'
            )
        cls.unlock_at_start = cls.unlock_at_start or cls.on_duplicate == "replace"

    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        *more: Any,
        once_ttl: float | timedelta | None = None,
        **options: Any,
    ) -> Any:
        """Publish the task, or return the result of the one that is queued or runs.

        :param once_ttl: for this call in place of the task's `once_ttl`
        :raises AlreadyQueued: one is queued or runs, and ``on_duplicate`` is ``"raise"``, or the
            caller needs one with this `task_id`, as chains do
        :raises LockUnavailable: the lock server does not tell whether one is queued
        """
        if self.app.conf.task_always_eager:
            return super().apply_async(args, kwargs, task_id, *more, **options)
        own = task_id or uuid()
        request = current_task.request if current_task else None
        republishes = request and request.id == own and current_task.name == self.name
        run: Any = request if republishes else None
        wait = self._seconds_until(options.get("eta") or options.get("countdown") or 0)
        ttl = until_start = min(check_ttl(once_ttl or self.once_ttl) + wait, LONGEST)
        if (expires := options.get("expires", self.expires)) is not None:
            # RabbitMQ drops an expired message, and no worker learns of it.
            until_start = min(ttl, self._seconds_until(expires) + LATE)
        lease = run and lease_of(run, until_start)
        if lease is None:
            key, using = self._key(args, kwargs)
            lease = PersistentLease(key, until_start, owner=own, using=using)
        header: dict[str, Any] = {"owner": own, "key": lease.key, "using": lease.using, "ttl": ttl}
        replaced: list[tuple[LeaseHolder, PersistentLease]] = []
        if run is not None:  # this run goes on: it is put off, or retries
            run.distlock_comes_again = True
            if has_begun(run):
                header = BEGUN
            else:
                self.renew_lease(lease)
        elif (first := self._first(lease, replaced)) is not None:
            if task_id is None and first.task_id and self.on_duplicate == "return":
                result = self.AsyncResult(first.task_id)
                result.distlock_duplicate = True
                return result
            parent = options.get("parent_id")
            if not (parent and current_task and current_task.request.id == parent):
                raise first  # or else this worker publishes the next link of a chain
            self._fail(own, first, options)
            return self.AsyncResult(own)
        headers = {**(options.pop("headers", None) or {}), ONCE: header}
        try:
            result = super().apply_async(args, kwargs, own, *more, headers=headers, **options)
        except BaseException:
            for one in (lease, *(record for _, record in replaced)):
                release(one)
            raise
        for old, record in replaced:
            keep(record, old, ttl)
        return result

    def lock_granted(self, locked: Locked) -> None:
        """Release the lease before the run, if it ends at the start; `runs` calls this.

        :meta private:
        """
        request = self.request
        begins = self.unlock_at_start and locked is locks_of(self)[-1] and not has_begun(request)
        if begins and (lease := lease_of(request)):
            try:
                lease.release()
            except NotOwner:
                self._drop_if_replaced(lease)
                if not (request.delivery_info or {}).get("redelivered"):
                    warn_of_early_end(lease)
            request.distlock_begun = True

    def _key(self, args: Any, kwargs: Any) -> tuple[str, str]:
        """Return the key of the lease for a call, and the alias in ``DISTLOCK``."""
        locked = [one for one in locks_of(self) if not one.shares]
        if not locked:
            raise TypeError(
                f"{self.name} has the base QueuedOnce and no lock. Its key identifies the tasks to "
                'queue once. Write @zk_locked("…") below its decorator.'
            )
        key = key_of_call(self, locked[0], args, kwargs, of=f"{self.name}:")
        return key, locked[0].options.using

    def _seconds_until(self, when: Any) -> float:
        """Return the seconds until a time, which may be a number of seconds from now."""
        if isinstance(when, int | float):
            return max(float(when), 0.0)
        moment = maybe_make_aware(maybe_iso8601(when), self.app.timezone)
        return max(float((moment - self.app.now()).total_seconds()), 0.0)

    def _first(
        self, lease: PersistentLease, replaced: list[tuple[LeaseHolder, PersistentLease]]
    ) -> AlreadyQueued | None:
        """Take the lease, or return the error that names its task; add to `replaced`."""
        while not lease.acquire(timeout=0):
            first = lease.holder()
            if first is None:  # it has ended just now
                continue
            if first.owner_id and self.on_duplicate == "replace":
                record = record_of(first.owner_id, lease.using, newer=lease.owner)
                if not record.acquire(timeout=LOOK_SECONDS):
                    other = record.holder()  # of an earlier message of this id, or of a rival
                    if other is None or other.ttl <= PUBLICATION:
                        continue
                if break_node(first, using=lease.using):
                    replaced.append((first, record))
                else:  # it has just begun
                    release(record)
                continue
            if first.owner_id and state_of(self, first.owner_id) in states.READY_STATES:
                # Celery stores the result a moment before the worker releases the lease.
                if lease.acquire(timeout=LOOK_SECONDS):
                    break
                release(PersistentLease(lease.key, 1, owner=first.owner_id, using=lease.using))
                continue
            return AlreadyQueued(
                f"{self.name} is queued or runs already: {first}. A chain, group or chord cannot "
                "wait for that one; queue it by itself.",
                key=lease.key,
                using=lease.using,
                task_id=first.owner_id,
            )
        return None

    def renew_lease(self, lease: PersistentLease) -> None:
        """Extend the lease of a run. One that is lost is not taken again.

        :meta private:
        """
        try:
            lease.renew()
        except LockLost:
            self._drop_if_replaced(lease)
            warn_of_early_end(lease)
        except LockUnavailable as error:
            logger.warning("%r could not be renewed: %s", lease, error)

    def _drop_if_replaced(self, lease: PersistentLease) -> None:
        """Raise `Ignore` if a newer message has replaced that of this run."""
        request = self.request
        if self.on_duplicate != "replace":
            return
        record = record_of(request.id, lease.using)
        while (newer := record.holder()) is not None and newer.ttl <= PUBLICATION:
            time.sleep(LOOK_SECONDS)
        if newer is not None:
            self._end_replaced(newer.owner_id, lease.using)
        if newer is not None or state_of(self, request.id) == states.REVOKED:  # dropped before
            request.distlock_begun = True
            raise Ignore("A newer message has replaced this one.")

    def _end_replaced(self, newer: str, using: str) -> None:
        """End the result of a replaced message, and what depends on it."""
        request = self.request
        logger.info("Replaced by %s; dropped.", newer)
        self.backend.mark_as_failure(
            request.id,
            Replaced(newer),
            request=request,
            store_result=not ignores_result(self, request),
            call_errbacks=False,
            state=states.REVOKED,
        )
        release(record_of(request.id, using, newer=newer))

    def _fail(self, task_id: str, error: AlreadyQueued, options: dict[str, Any]) -> None:
        """Fail the next link of a chain, and all after it, instead of the one that publishes it."""
        request = Context(
            options,
            id=task_id,
            task=self.name,
            group=options.get("group_id"),
            errbacks=maybe_list(options.get("link_error")),
        )
        logger.error("The next link of a chain was refused: %s", error)
        self.backend.mark_as_failure(
            task_id, error, request=request, store_result=not self.ignore_result
        )


def is_duplicate(result: Any) -> bool:
    """Return whether ``delay()`` returned the result of a task that was queued before.

    :param result: the result of `QueuedOnce.apply_async` or ``delay()``
    """
    return getattr(result, "distlock_duplicate", False) is True


def lease_of(request: Any, ttl: float | None = None) -> PersistentLease | None:
    """Return the lease of a message, for its own seconds or `ttl`, None if it has none."""
    header: Any = (request.headers or {}).get(ONCE)
    try:
        if header["owner"] != request.id:
            return None
        key, using, ttl = header["key"], header["using"], ttl or header["ttl"]
        return PersistentLease(key, ttl, owner=request.id, using=using)
    except (TypeError, KeyError, ValueError, LockKeyError):
        return None


def has_begun(request: Any) -> bool:
    """Return whether this run, or an earlier one of the task, has released its lease."""
    return bool(request.get("distlock_begun") or (request.headers or {}).get(ONCE) == BEGUN)


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


def record_of(task_id: str, using: str, *, newer: str | None = None) -> PersistentLease:
    """Return the lease that records the newer message that replaces the one of this id."""
    return PersistentLease(f"distlock.replaced:{task_id}", PUBLICATION, owner=newer, using=using)


def keep(record: PersistentLease, old: LeaseHolder, ttl: float) -> None:
    """Keep the record of a message that is replaced for as long as either of the two may come."""
    remaining = 0.0
    if old.expires is not None:
        remaining = (old.expires - datetime.now(timezone.utc)).total_seconds()
    try:
        record.renew(min(max(ttl, remaining, 2 * PUBLICATION), LONGEST))
    except (LockLost, LockUnavailable) as error:
        logger.warning(
            "%s was replaced by %s, and runs, too: %s", old.owner_id, record.owner, error
        )


def _run_begins(task: Any, **_: Any) -> None:
    """Extend the lease of an expiring task to its run."""
    expires = isinstance(task, QueuedOnce) and task.request.expires and not task.unlock_at_start
    if expires and (lease := lease_of(task.request)):
        task.renew_lease(lease)


def _run_ended(task: Any, retval: Any = None, state: str | None = None, **_: Any) -> None:
    """Release the lease when a run has ended that does not come again."""
    request = task.request
    if not isinstance(task, QueuedOnce) or request.is_eager:
        return
    comes_again = (
        state == states.RETRY
        or (state is None and task.acks_late)  # interrupted, and perhaps delivered again
        or (isinstance(retval, Reject) and retval.requeue)
        or isinstance(retval, CopyDropped)  # the original runs
        or getattr(request, "distlock_comes_again", False)
    )
    if not comes_again and not has_begun(request) and (lease := lease_of(request)):
        release(lease, expected=state is not None)  # the main process releases, too


def release_lost(sender: Any, request: Any, **_: Any) -> None:
    """Release the lease when a task was dropped, terminated or lost, in the main process."""
    if isinstance(sender, QueuedOnce) and (lease := lease_of(request)):
        release(lease)


def _process_lost(sender: Any, exception: Any = None, **_: Any) -> None:
    if isinstance(exception, WorkerLostError):
        release_lost(sender, sender.request)


signals.task_prerun.connect(_run_begins, weak=False)
signals.task_postrun.connect(_run_ended, weak=False)
signals.task_revoked.connect(release_lost, weak=False)
signals.task_failure.connect(_process_lost, weak=False)
