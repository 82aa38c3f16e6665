"""Runs a Celery task under its lock, with its policy for a busy lock."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from inspect import ismethod
from typing import Any, NoReturn

from celery import states
from celery.exceptions import Ignore

from distlock.conf import UNSET, configuration
from distlock.decorators import PUT_OFF, Locked
from distlock.exceptions import LimitReached, LockBusy, LockUnavailable
from distlock.keys.znodes import Participant
from distlock.locks.mutex import Mutex
from distlock.locks.semaphore import Permits, Semaphore
from distlock.owner.hold import Hold
from distlock.owner.owner import MAX_LABEL
from distlock.session.registry import session_for
from distlock.signals import announce
from distlock.text import printable
from distlock.transactions import end_statements

from . import task_refused
from .put_off import (
    PutOff,
    Record,
    ignores_result,
    logger,
    longest_pause,
    pause_limits,
    pop_tickets,
    put_off,
    state_of,
)
from .tickets import Ticket, Turn, leave, look

#: The longest pause between two tries of a task, in seconds.
MAX_PAUSE = 30.0
#: The part of its last pause for which a delayed task queues when it comes again. Retries queue
#: briefly, so older tasks win, and still give their slots back.
PART_IN_LINE = 0.2
#: How late after its release a result may be stored, in seconds; a dead task's copy waits as long.
RESULT_SECONDS = 1.0


class CopyDropped(Ignore):  # type: ignore[misc]  # Celery has no types
    """Ends a copy of a task that runs or has run."""


class Run:
    """One run of a task whose own function is locked."""

    def __init__(self, task: Any, locked: Locked, around: list[Locked]) -> None:
        self.task = task
        self.locked = locked
        self.request = task.request
        self.record = Record.of(self.request.headers)
        #: The locks of this task around this one.
        self.around = around
        self.in_worker = not self.request.is_eager
        self.using = locked.options.using
        self.template = locked.template.text
        self._retries = self.in_worker and locked.on_busy in (None, *PUT_OFF)
        self._retry_after = configuration(self.using).retry_after
        self.key = ""
        self.call: tuple[Any, Any] = (), {}
        #: One for each rule, in the order of their acquires.
        self.tickets: list[Ticket] = []
        self.turn: Turn | None = None
        #: The most tickets that are ahead under a rule, None if there is no queue.
        self.ahead: int | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function under its lock, or answer by its policy."""
        self.key, self.call = self.locked.key(args, kwargs), (args, kwargs)
        self.around.append(self.locked)
        try:
            return self._run(args, kwargs)
        except PutOff as end:
            if len(self.around) == 1:
                end.publish()
            raise
        except BaseException:
            leave(self.tickets)
            raise
        finally:
            self.around.pop()

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with ExitStack() as stack:
            try:
                hold = self._enter(stack)
                if hasattr(self.task, "lock_granted"):  # `queued_once`
                    self.task.lock_granted(self.locked)
            except (LockBusy, LockUnavailable) as error:
                return self._refused(error, args, kwargs)
            stack.callback(end_statements)  # also those of a soft time limit that the task caught
            leave(self.tickets)
            first = hold[0] if isinstance(hold, tuple) else hold
            if not first.without_lock:
                self._log_grant(first)
            return self.locked.run(stack, hold, args, kwargs)

    def _log_grant(self, hold: Hold) -> None:
        waited = self.record.waited
        logger.info(
            "The lock %r was granted after %.2f s (token %d, put off %d times).",
            self.key,
            waited,
            hold.token,
            self.record.put_off,
            extra=self._fields("acquired", waited=waited, token=hold.token, path=hold.path),
        )

    def _enter(self, stack: ExitStack) -> Hold:
        mutex = self.locked.lock(self.key, *self.call, self._patience())
        # Not every broker tells, and a wait without end never learns the holder, so it asks first.
        redelivered = (self.request.delivery_info or {}).get("redelivered")
        waits_again = self.record.put_off and self.locked.on_busy == "wait"
        # A task that shares its lock with others shares it with its copy, too.
        of_one = not self.locked.shares and self.locked.kind != "read"
        may_be_copy = of_one and self.in_worker and (redelivered or waits_again)
        other = self._other_run(mutex) if may_be_copy else None
        if other is None:
            try:
                has_it = not self.locked.shares and mutex.held
                if self.locked.on_busy == "queue" and self.in_worker and not has_it:
                    return self._enter_in_turn(stack)
                return stack.enter_context(mutex)
            except LockBusy as busy:
                other = busy.holder
                if other is None and of_one and self.request.retries and not self._retries:
                    return stack.enter_context(mutex)  # its earlier run may have left just now
                if not self._is_this_task(other):
                    raise
        return self._outlive(stack, other)

    def _enter_in_turn(self, stack: ExitStack) -> Hold:
        """Take the lock if no ticket is ahead, or else draw a ticket.

        A short hold of a mutex is awaited in the slot; permits are for long work. Under several
        rules a task draws its ticket for the next one when it is its turn under the one before, and
        keeps both. It holds nothing meanwhile.
        """
        session = session_for(self.using)
        timeout = self.locked.options.timeout
        patience = 0.0 if self.locked.shares else self._retry_after
        if timeout is not UNSET:
            patience = MAX_PAUSE if timeout is None else min(float(timeout), MAX_PAUSE)
        # A delayed task costs more than a short hold, and so do all tasks behind its ticket.
        short = min(patience, self._retry_after)
        lock = self.locked.lock(self.key, *self.call, short)
        rules = rules_of(lock)
        limited = self.locked.shares
        self.tickets = [Ticket(session, one.key, self.request.id, limited=limited) for one in rules]
        admitted = pop_tickets(self.request)
        for ticket, path in zip(self.tickets, admitted, strict=False):
            ticket.drawn_as(path)
        if not admitted:
            look(session, self.tickets, self.key)
        if admitted or not any(ticket.drawn or ticket.ahead for ticket in self.tickets):
            try:
                return stack.enter_context(lock)
            except LockBusy as busy:
                if self._is_this_task(busy.holder):
                    raise
            patience -= short
        self.ahead = max(ticket.ahead for ticket in self.tickets)
        try:
            for rule, ticket in zip(rules, self.tickets, strict=True):
                ticket.stand()
                may_wait = not ticket.ahead and rule is rules[-1]  # in its slot
                if not (may_wait or (limited and ticket.ahead < ticket.room(rule))):
                    holder = None if limited else rule.holder()
                    what = f"Tasks that wait for {rule.key!r} before this one: {ticket.ahead}."
                    raise self._busy(what, rule, holder)
            return stack.enter_context(self.locked.lock(self.key, *self.call, patience))
        except LockBusy as busy:
            number = [one.key for one in rules].index(busy.key)
            self.turn = self.tickets[number].turn(rules[number])
            leave(self.tickets[number + 1 :])  # it would keep others from what it cannot use
            raise

    def _patience(self) -> float | None:
        """Return the time-out of a retry, None if ``timeout=`` sets it."""
        if not self._retries or self.locked.options.timeout is not UNSET:
            return None
        tries = self.record.busy
        return PART_IN_LINE * min(self._pause_while_busy(tries), MAX_PAUSE) if tries else 0.0

    def _other_run(self, mutex: Mutex | Semaphore) -> Participant | None:
        """Return another run of this task that holds the lock or waits for it, before this one."""
        return next(filter(self._is_this_task, mutex.participants()), None)

    def _is_this_task(self, holder: Participant | None) -> bool:
        """Return whether the holder is another run of this task: a copy, or an earlier retry."""
        own = label_of(self.task, retries=0)
        return (
            self.in_worker
            and holder is not None
            and len(own) < MAX_LABEL
            and (holder.label == own or holder.label.startswith(f"{own} "))
        )

    def _outlive(self, stack: ExitStack, other: Participant | None) -> Hold:
        """Wait until another run of this task has ended, or is known to be alive.

        The session of a dead one ends in this time, and then this run is the task's only one. A
        living one works: the broker has delivered its message twice, and this copy is dropped.
        """
        own = label_of(self.task)  # of a retry, another than that of the run before
        patience = 1.5 * session_for(self.using).timeout + 1
        mutex = self.locked.lock(self.key, *self.call, patience)
        try:
            hold = stack.enter_context(mutex)
        except LockBusy as busy:
            living = self._other_run(mutex)
            if living is not None and living.label == own:
                self._drop(f"{living} runs, or waits", busy)
            if living is not None:
                raise
            # The dead one was only waiting, and a rival holds the lock.
            hold = stack.enter_context(self.locked.lock(self.key, *self.call, self._patience()))
        if other is not None and other.label == own and self._has_succeeded():
            self._drop("has just ended")
        return hold

    def _has_succeeded(self) -> bool:
        """Return whether the result backend knows, or will in a moment, that this task is done."""
        if ignores_result(self.task, self.request):
            return False
        deadline = time.monotonic() + RESULT_SECONDS
        while (state := state_of(self.task, self.request.id)) not in ("", *states.READY_STATES):
            if time.monotonic() > deadline:
                break
            time.sleep(RESULT_SECONDS / 20)
        return bool(state == states.SUCCESS)

    def _drop(self, why: str, busy: LockBusy | None = None) -> NoReturn:
        extra = self._fields("dropped")
        logger.warning("A copy of a task that %s (lock %r); dropped.", why, self.key, extra=extra)
        self._announce("dropped", busy)
        raise CopyDropped("a copy of a task that runs, or has run")

    def _refused(
        self, error: LockBusy | LockUnavailable, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        policy = self.locked.on_busy
        away = isinstance(error, LockUnavailable)
        if self._retries or (self.in_worker and policy != "raise" and away):
            self._put_off(error)
        if isinstance(error, LockBusy) and policy == "skip":
            extra = self._fields("skipped")
            logger.info(
                "The lock %r is busy; skipped. Held by %s.", self.key, error.holder, extra=extra
            )
            self._announce("skipped", error)
            return {"skipped": self.key}
        if isinstance(error, LockBusy) and callable(policy):
            self._announce("answered", error)
            return policy(error, *args, **kwargs)
        self._announce("failed", error)
        raise error

    def _put_off(self, error: LockBusy | LockUnavailable) -> NoReturn:
        record, (limit, deadline, _) = self.record.after(error), self.locked.delays
        remaining = float("inf") if deadline is None else deadline - record.waited
        if (limit is not None and record.busy > limit) or remaining <= 0:
            self._announce("failed", error)
            if isinstance(error, LockUnavailable):
                raise error
            raise self._busy(
                f"{error.key!r} is busy, after the task was put off "
                f"{self.record.put_off} times in {self.record.waited:.1f} s.",
                error,
                error.holder,
                " Give it a higher busy_limit or busy_deadline, or see why the lock is held for so "
                "long.",
            )
        if isinstance(error, LockUnavailable):
            longest = self._pause(record.away)
        elif self.ahead is not None:
            longest = longest_pause(self.task.app, self.ahead, self._retry_after)
        else:
            longest = self._pause_while_busy(record.busy)
        shortest, at_most = pause_limits(self.task.app)
        pause = min(longest * random.uniform(0.5, 1), remaining, at_most)  # noqa: S311 - no secret
        pause = max(pause, shortest)
        extra, times = self._fields("retried"), self.record.put_off
        logger.info("Put off for %.1f s, %d times so far: %s", pause, times, error, extra=extra)
        self._announce("retried", error)
        end = put_off(self.task, error, pause, record, self.turn)
        end.tickets = self.tickets
        raise end from error

    def _pause(self, tries: int) -> float:
        return min(self._retry_after * 2.0 ** min(tries - 1, 10), MAX_PAUSE)

    def _pause_while_busy(self, tries: int) -> float:
        return self.locked.delays.pause or self._pause(tries)

    def _busy(
        self,
        what: str,
        of: Permits | Mutex | LockBusy,
        holder: Participant | None,
        advice: str = "",
    ) -> LockBusy:
        by = f" It is held by {holder}." if holder else ""
        kind = LimitReached if self.locked.shares else LockBusy
        return kind(
            f"{what}{by}{advice}",
            key=of.key,
            template=of.template,
            holder=holder,
            waited=self.record.waited,
            retry_after=self._retry_after,
            using=self.using,
        )

    def _fields(self, outcome: str, **more: Any) -> dict[str, Any]:
        said = {"key": self.key, "using": self.using, "template": self.template}
        fields = {**said, "outcome": outcome, "put_off": self.record.put_off, **more}
        return {k: printable(v) if isinstance(v, str) else v for k, v in fields.items()}

    def _announce(self, outcome: str, error: LockBusy | LockUnavailable | None) -> None:
        announce(
            task_refused,
            type(self.task),
            self,
            task_id=self.request.id,
            outcome=outcome,
            holder=getattr(error, "holder", None),
            waited=self.record.waited,
            put_off=self.record.put_off,
        )


def label_of(task: Any, *, retries: int | None = None) -> str:
    """Return the label of a task's nodes: ``feeds.tasks.refresh[<id>]``.

    A task that retries while it holds a lock may still hold it when its next run asks. The next
    run is no copy, so the label has its count: ``… retry 2``.
    """
    count = task.request.retries if retries is None else retries
    task_id = f"[{task.request.id}]"
    name = task.name[: MAX_LABEL - len(task_id) - len(" retry 99999")]
    return f"{name}{task_id}" + (f" retry {count}" if count else "")


def locks_of(task: Any) -> list[Locked]:
    """Return the locks on a task's own function, and on the functions that its class overrides."""
    locks: dict[Locked | None, None] = {}
    for run in (task.run, *(vars(base).get("run") for base in type(task).__mro__)):
        layer = run
        while layer is not None:
            locks[getattr(layer, "distlock", None)] = None
            layer = getattr(layer, "__wrapped__", None)
    return [locked for locked in locks if locked is not None]


def rules_of(lock: Any) -> list[Any]:
    """Return the lock of a call, or those of its several rules in the order of their acquires."""
    return getattr(lock, "in_order", [lock])


def key_of_call(task: Any, locked: Locked, args: Any, kwargs: Any, **how: Any) -> str:
    """Return the key of a task's lock for the arguments of a message; `how` as in `Locked.key`."""
    return locked.key(*call_of(task, args, kwargs), **how)


def call_of(task: Any, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a message as the locked function gets them."""
    run = getattr(task, "_orig_run", task.run)  # autoretry_for puts a function around it
    bound = (task,) if ismethod(run) else ()
    return (*bound, *(args or ())), dict(kwargs or {})
