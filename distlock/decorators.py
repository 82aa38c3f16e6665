"""Locks functions, methods and views, sync and async, with ``@zk_locked("stock:<sku>")``."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.db import transaction
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse

from .conf import UNSET, positive_seconds, prefixed, seconds, warn_unless_installed
from .exceptions import LockBusy, LockKeyError
from .keys.templates import KeyTemplate
from .locks.lock import OnUnavailable, Options
from .locks.multilock import MultiLock
from .locks.mutex import Mutex
from .locks.rwlock import ReadWriteLock
from .locks.semaphore import Semaphore
from .owner.hold import Hold
from .queue.semaphore import whole
from .transactions import OpensOwnTransaction, claimed_databases

P = ParamSpec("P")
R = TypeVar("R")

OnBusy = Literal["raise", "wait", "skip", "retry", "queue"] | Callable[..., Any]
_POLICIES = ("raise", "wait", "skip", "retry", "queue")


#: The number of permits of a key, or what returns it for the arguments of a call.
Limit = int | Callable[..., int]


class Limited(NamedTuple):
    """How many permits there are for each key, and how many of them a call takes."""

    limits: list[Limit]
    permits: int


#: The kind of lock: that of `zk_lock`, one of `zk_rwlock`, or permits.
Kind = Literal["read", "write"] | Limited | None
#: The policies that delay a Celery task.
PUT_OFF = ("retry", "queue")


def zk_locked(
    template: str,
    *,
    timeout: float | timedelta | None = UNSET,
    mode: Literal["read", "write"] | None = None,
    on_busy: OnBusy | None = None,
    busy_limit: int | None = None,
    busy_deadline: float | timedelta | None = UNSET,
    busy_pause: float | timedelta | None = None,
    using: str = "default",
    fair: bool = True,
    handoff: int = 0,
    atomic: bool | str = False,
    until: Literal["block", "commit"] = "block",
    on_revoke: Callable[[Mutex], object] | None = None,
    max_hold: float | timedelta | None = None,
    hold_at_least: float | timedelta | None = None,
    max_waiters: int | None = None,
    cancel_on_loss: bool = False,
    on_unavailable: OnUnavailable = "raise",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run the decorated function under the lock that `template` names.

    ::

        @zk_locked("stock:<sku>", timeout=2)
        def buy(request, sku): ...

    It locks functions, methods (above or below ``@staticmethod`` and ``@classmethod``), function
    views and class views' ``dispatch``, sync and async, and Celery tasks below ``@shared_task``. A
    view under ``ATOMIC_REQUESTS`` opens its transaction inside the lock and commits before the
    release.

    :param template: the key; ``<name>`` is an argument, ``<order.pk>`` follows attributes
    :param timeout: seconds to wait, 0 to try once, None for ever; by default the setting
        ``TIMEOUT`` (5 s)
    :param mode: "read" shares the lock with other readers, and "write" excludes them: the two locks
        of `zk_rwlock`. By default it is that of `zk_lock`, which excludes both
    :param on_busy: the reaction to a lock that is busy after `timeout`:
        by default a view answers 423, a task in a worker retries, and a function raises;
        ``"raise"`` raises `LockBusy`;
        ``"wait"`` waits for ever unless `timeout` is given, then raises;
        ``"skip"`` returns None without a call (a view answers 204, a task ``{"skipped": key}``),
        so annotate the function with ``| None``;
        ``"retry"`` delays a task without using up its retries; other functions raise;
        ``"queue"`` serves tasks first come, first served, and delays them outside the slots;
        a callable is called with the `LockBusy` and the arguments, and its result is returned
    :param busy_limit: how often a task is delayed before it raises, None for no limit
    :param busy_deadline: the same in seconds since the first try, None for ever; an hour by default
    :param busy_pause: seconds (number or timedelta) of each delay under ``"retry"``, less up to
        half of it at random; by default they grow from ``RETRY_AFTER`` (1 s) to 30 s. Celery's
        ``default_retry_delay`` is for the task's own retries
    :param using: the alias in ``DISTLOCK``
    :param fair: False does not queue, as in `zk_lock`
    :param handoff: how many waiters of this process may follow each other, as in `zk_lock`
    :param atomic: True opens a database transaction inside the lock, a text opens it on that
        database
    :param until: "commit" keeps the lock until an open transaction has ended, as in `zk_lock`
    :param on_revoke: called with the lock, in a thread of its own, when somebody asks for it
    :param max_hold: seconds (number or timedelta) after which a hold is given up, as in `zk_lock`
    :param hold_at_least: seconds (number or timedelta) for which the key stays taken from the call
        on, as in `zk_lock`; not with `mode`
    :param max_waiters: the number of waiters at which a further call finds the lock busy at once,
        as in `zk_lock`; a delayed task is none
    :param cancel_on_loss: True cancels the call of a coroutine function when the lock is lost, and
        raises `LockLost`, as in `zk_lock`
    :param on_unavailable: "proceed" calls the function **without the lock** where the lock server
        is away, as in `zk_lock`; a Celery task is not put off then
    :raises LockBusy: see `on_busy`
    :raises LockUnavailable: the lock server did not answer
    :raises LockKeyError: at decoration for a malformed template, or one that names no argument of
        the function; at the call for an empty value
    """
    alone = handoff or not fair or hold_at_least is not None
    if mode is not None and (mode not in ("read", "write") or alone):
        raise ValueError(
            f'mode= is "read" or "write", without handoff=, fair=False and hold_at_least=, not '
            f"{mode!r:.80}."
        )
    options = Options(
        timeout=timeout,
        using=using,
        fair=fair,
        handoff=handoff,
        atomic=atomic,
        until=until,
        on_revoke=on_revoke,
        max_hold=max_hold,
        hold_at_least=hold_at_least,
        max_waiters=max_waiters,
        cancel_on_loss=cancel_on_loss,
        on_unavailable=on_unavailable,
    )
    return _decorator([template], options, mode, on_busy, (busy_limit, busy_deadline, busy_pause))


def zk_limited(
    template: str | Mapping[str, Limit],
    limit: Limit | None = None,
    *,
    permits: int = 1,
    timeout: float | timedelta | None = UNSET,
    on_busy: OnBusy | None = None,
    busy_limit: int | None = None,
    busy_deadline: float | timedelta | None = UNSET,
    busy_pause: float | timedelta | None = None,
    using: str = "default",
    max_hold: float | timedelta | None = None,
    max_waiters: int | None = None,
    cancel_on_loss: bool = False,
    on_unavailable: OnUnavailable = "raise",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run at most `limit` calls of the decorated function at a time for each key, in all processes.

    ::

        @shared_task
        @zk_limited("customer:<customer>", 3)
        def report(customer): ...

    It decorates what `zk_locked` does, with the permits of a `zk_semaphore`: a killed process gives
    its permits back with its session. It is not reentrant. A view that gets no permit answers 429.

    A call under several rules takes permits of all or of none::

        @zk_limited({"reports": 40, "customer:<customer>": 3})

    It comes to the rule with the smallest limit first, in any function, so functions that share
    rules never deadlock, and all that one customer can have in the queue of the 40 is three calls.

    :param template: the key, as in `zk_locked`, or the limits by their keys
    :param limit: the number of permits of one key, or a function that returns it for the arguments
        of the call; a limit that is set at run time (`Semaphore.limit`) overrides it
    :param permits: the number of permits that one call takes of each key, all or none
    :param timeout: seconds to wait, as in `zk_locked`
    :param on_busy: the reaction when too few permits are free after `timeout`, as in `zk_locked`
    :param busy_limit: how often a task is delayed before it raises, as in `zk_locked`
    :param busy_deadline: the same in seconds since the first try, as in `zk_locked`
    :param busy_pause: seconds of each delay under ``"retry"``, as in `zk_locked`
    :param using: the alias in ``DISTLOCK``
    :param max_hold: seconds after which a permit is given up, as in `zk_lock`
    :param max_waiters: the number of waiters at which a further call is refused at once, as in
        `zk_locked`
    :param cancel_on_loss: True cancels the call of a coroutine function at a loss, as in `zk_lock`
    :param on_unavailable: "proceed" calls the function without a permit, as in `zk_locked`; for one
        rule only
    :raises LimitReached: see `on_busy`
    :raises LockUnavailable: the lock server did not answer
    :raises LockKeyError: as in `zk_locked`
    """
    options = Options(
        timeout=timeout,
        using=using,
        max_hold=max_hold,
        max_waiters=max_waiters,
        cancel_on_loss=cancel_on_loss,
        on_unavailable=on_unavailable,
    )
    several = isinstance(template, Mapping)
    if several != (limit is None) or template == {}:
        raise TypeError(
            'zk_limited takes a key and its limit, or a dict: {"reports": 40, "customer:<id>": 3}.'
        )
    if several and on_unavailable == "proceed":
        raise ValueError(
            'on_unavailable="proceed" is for one rule: of several, a call gets all or none. Leave '
            "it out, and catch LockUnavailable."
        )
    rules: Mapping[str, Any] = template if isinstance(template, Mapping) else {template: limit}
    limits = [one if callable(one) else whole(one, "limit") for one in rules.values()]
    limited = Limited(limits, whole(permits, "permits"))
    return _decorator(rules, options, limited, on_busy, (busy_limit, busy_deadline, busy_pause))


def _decorator(
    templates: Iterable[str],
    options: Options,
    kind: Kind,
    on_busy: OnBusy | None,
    limits: tuple[int | None, Any, Any],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    warn_unless_installed("zk_locked", stacklevel=3)
    parsed = [KeyTemplate(template) for template in templates]
    if not (on_busy is None or on_busy in _POLICIES or callable(on_busy)):
        raise ValueError(
            f"on_busy must be one of {', '.join(map(repr, _POLICIES))} or a callable, not "
            f"{on_busy!r}."
        )
    if on_busy == "queue" and kind == "read":
        raise ValueError('on_busy="queue" serves one task after another; readers take "retry".')
    if on_busy == "queue" and options.on_unavailable == "proceed":
        raise ValueError(
            'on_busy="queue" keeps the order of arrival, which only the lock server knows; with '
            'on_unavailable="proceed" take "retry".'
        )
    delays = _delays(*limits, on_busy)
    options = replace(options, template=parsed[0].text)
    if on_busy == "wait" and options.timeout is UNSET:
        options.timeout = None

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if isinstance(function, staticmethod | classmethod):
            return cast("Callable[P, R]", type(function)(decorate(function.__func__)))
        locked = Locked(function, parsed, options, kind, on_busy, delays)
        return cast("Callable[P, R]", locked.wrapper())

    return decorate


class Delays(NamedTuple):
    """How often, and for how many seconds in all and each time, a Celery task is delayed."""

    limit: int | None
    deadline: float | None
    pause: float | None


def _delays(limit: object, deadline: object, pause: object, on_busy: OnBusy | None) -> Delays:
    if on_busy not in (None, *PUT_OFF) and not (limit is None and deadline is UNSET):
        policies = 'on_busy="retry" and "queue"'
        raise ValueError(f"busy_limit and busy_deadline belong to {policies}, not to {on_busy!r}.")
    if not (limit is None or (type(limit) is int and limit > 0)):
        raise ValueError(f"busy_limit must be a number of tries above 0, or None, not {limit!r}.")
    if pause is not None and on_busy not in (None, "retry"):
        raise ValueError(f'busy_pause belongs to on_busy="retry", not to {on_busy!r}.')
    deadline = 3600.0 if deadline is UNSET else seconds(deadline, "busy_deadline")
    return Delays(limit, deadline, positive_seconds(pause, "busy_pause"))


#: Returns the function that runs a Celery task's own call, or None for another call. `celery` sets
#: it if Celery is used.
task_runner: Callable[[Locked], Callable[[tuple[Any, ...], dict[str, Any]], Any] | None] | None = (
    None
)


@dataclass(eq=False)
class Locked:
    """One decorated function, with the options of its lock. It keeps no state of a call."""

    function: Callable[..., Any]
    #: One; several under several limits, of which the first stands for all.
    templates: list[KeyTemplate]
    options: Options
    kind: Kind
    on_busy: OnBusy | None
    delays: Delays

    def __post_init__(self) -> None:
        function = self.function
        if inspect.isclass(function) or not callable(function):
            raise TypeError(
                "zk_locked decorates a function. For a class view, decorate its dispatch: "
                '@method_decorator(zk_locked("…"), name="dispatch").'
            )
        if hasattr(function, "apply_async"):
            raise TypeError(
                "zk_locked decorates the function of a Celery task: write it below @shared_task."
            )
        inner = inspect.unwrap(function)
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            block = "with" if inspect.isgeneratorfunction(inner) else "async with"
            raise TypeError(
                f"zk_locked cannot lock the generator {inner.__qualname__}: its body runs after "
                f"the call has returned. Use `{block} zk_lock(…):` inside it."
            )
        if iscoroutinefunction(function) and self.options.atomic:
            raise TypeError(
                f"atomic= opens a database transaction around {inner.__qualname__}, which Django "
                "cannot do in async code. Lock a synchronous function, and call that with "
                "sync_to_async."
            )
        # method_decorator passes a partial, perhaps decorated already, whose own wrapped function
        # still has `self`.
        bound = inspect.unwrap(
            function, stop=lambda f: isinstance(f, functools.partial) or hasattr(f, "__signature__")
        )
        self.bound = bound if isinstance(bound, functools.partial) else None
        self.signature = inspect.signature(bound, follow_wrapped=self.bound is None)
        for template in self.templates:
            if missing := template.missing_from(self.signature):
                raise LockKeyError(
                    f"The lock key {template.text!r} of {self.name} names "
                    f"{', '.join(map(repr, missing))}, which is no argument of it. "
                    f"It has: {', '.join(self.signature.parameters) or 'none'}."
                )
        marker = getattr(function, "_non_atomic_requests", None)
        #: Of two locks on one view the inner one opens the transaction.
        self.opens_transaction = not isinstance(marker, OpensOwnTransaction)
        self.marker = OpensOwnTransaction(marker or ()) if self.opens_transaction else marker

    def wrapper(self) -> Any:
        """Return the function to use in place of the decorated one."""
        call = self._async_call() if iscoroutinefunction(self.function) else self._sync_call()
        functools.update_wrapper(call, self.function)
        call.__signature__ = self.signature  # Celery's argument check reads it
        call._non_atomic_requests = self.marker  # noqa: SLF001 - Django's own name
        call.distlock = self
        if "celery" in sys.modules:  # a task's module has imported it, perhaps after `apps`
            import_module("distlock.celery.receivers")  # sets `task_runner`
        return call

    @property
    def template(self) -> KeyTemplate:
        return self.templates[0]

    @property
    def name(self) -> str:
        """The dotted name of the function."""
        function = inspect.unwrap(self.function)
        name = getattr(function, "__qualname__", repr(function))
        return f"{getattr(function, '__module__', '?')}.{name}"

    def _sync_call(self) -> Any:
        acall = self._async_call()

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._serves_async(args):
                return acall(*args, **kwargs)
            run_task = task_runner and task_runner(self)
            if run_task:
                return run_task(args, kwargs)
            hold = None
            try:
                # The lock has a block of its own: a soft time limit between two steps of an
                # ExitStack, which is written in Python, would leave it held.
                with self.lock(self.key(args, kwargs), args, kwargs) as hold, ExitStack() as stack:
                    return self.run(stack, hold, args, kwargs)
            except LockBusy as busy:
                if hold is not None:  # of another lock, in the function
                    raise
                return self._busy(busy, args, kwargs)

        return call

    def run(
        self, stack: ExitStack, hold: Hold, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call the function under `hold`, in transactions that `stack` ends before that ends."""
        for alias in self._databases(args):
            stack.enter_context(transaction.atomic(using=alias))
        result = self.function(*args, **kwargs)
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError(
                f"{self.name} returned a coroutine, which would run after the lock is "
                "released. Decorate an `async def`."
            )
        self._warn_of_stream(result)
        for one in hold if isinstance(hold, tuple) else (hold,):
            if not one.without_lock:
                one.check()  # never commit under a lost lock
        return result

    def _async_call(self) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if any(self._databases(args)):  # as Django does, which leaves this view to us
                raise RuntimeError("You cannot use ATOMIC_REQUESTS with async views.")
            hold = None
            try:
                async with self.lock(self.key(args, kwargs), args, kwargs) as hold:
                    result = self.function(*args, **kwargs)
                    result = await result if inspect.isawaitable(result) else result
                    self._warn_of_stream(result)
                    return result
            except LockBusy as busy:
                if hold is not None:
                    raise
                answer = self._busy(busy, args, kwargs, is_async=True)
                return await answer if inspect.isawaitable(answer) else answer

        return call

    def _warn_of_stream(self, result: object) -> None:
        # The body of a FileResponse is a file, and none of the view's code.
        if (
            settings.DEBUG
            and isinstance(result, StreamingHttpResponse)
            and not isinstance(result, FileResponse)
        ):
            warnings.warn(
                f"{self.name} returns a {type(result).__name__}, whose body runs after the lock is "
                "released. Take the lock in the body: `with zk_lock(…):`, in async code `async "
                "with`. Or return all of it at once.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _serves_async(self, args: tuple[Any, ...]) -> bool:
        """Return whether this is the ``dispatch``, a plain function, of an async class view."""
        method = self.bound and self.bound.func
        view = getattr(method, "__self__", None) or next(iter(args), None)
        return getattr(view, "view_is_async", False) is True

    def lock(
        self, key: str, args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None = None
    ) -> Mutex | Semaphore:
        """Return the lock of one call; of several rules a `MultiLock`, whose block yields a tuple.

        :param timeout: seconds to wait, in place of the decorator's
        """
        options = self.options if timeout is None else replace(self.options, timeout=timeout)
        if isinstance(self.kind, Limited):
            rules: list[Semaphore] = []
            for template, limit in zip(self.templates, self.kind.limits, strict=True):
                if rules:
                    key = self.key(args, kwargs, template=template)
                    options = replace(options, template=template.text)
                number = limit(*args, **kwargs) if callable(limit) else limit
                rules.append(Semaphore(key, number, options, wanted=self.kind.permits))
            return cast("Semaphore", MultiLock(rules, options)) if rules[1:] else rules[0]
        if self.kind is None:
            return Mutex(key, options)
        both = ReadWriteLock(key, options)
        return both.read if self.kind == "read" else both.write

    @property
    def shares(self) -> bool:
        """Whether several calls of one key may run at a time by design, as under a limit."""
        return isinstance(self.kind, Limited)

    def refused_inside(self, databases: Collection[str]) -> bool:
        """Return whether a call raises inside transactions on these databases."""
        is_kept = set(databases) <= {self.options.transaction}
        return not (self.shares or is_kept)

    def key(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        of: str = "",
        template: KeyTemplate | None = None,
    ) -> str:
        """Return the key of one call.

        :param of: stands before it, after the ``KEY_PREFIX``
        :param template: that of a further rule, in place of the first
        """
        key = of + (template or self.template).bind(self.signature, args, kwargs)
        return prefixed(key, self.options.using)

    def _busy(
        self,
        busy: LockBusy,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_async: bool = False,
    ) -> Any:
        request = _request_in(args)
        if self.on_busy is None and request is not None:
            from .responses import refusal  # noqa: PLC0415 - who has no views needs no HTTP

            # A site's template may ask the database, for the user or the session.
            return (sync_to_async(refusal) if is_async else refusal)(request, busy)
        if self.on_busy == "skip":
            return None if request is None else HttpResponse(status=204)
        if callable(self.on_busy):
            return self.on_busy(busy, *args, **kwargs)
        raise busy

    def _databases(self, args: tuple[Any, ...]) -> Iterable[str]:
        """Return the databases whose ``ATOMIC_REQUESTS`` Django left to this wrapper."""
        return claimed_databases(_request_in(args)) if self.opens_transaction else ()


def _request_in(args: tuple[Any, ...]) -> HttpRequest | None:
    """Return the request that a view is called with: first, or after ``self``."""
    return next((arg for arg in args[:2] if isinstance(arg, HttpRequest)), None)
