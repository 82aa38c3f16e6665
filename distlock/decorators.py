"""``@zk_locked("stock:<sku>")`` on functions, methods and views, sync and async."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Literal, ParamSpec, TypeVar, cast
from weakref import WeakSet

from asgiref.sync import iscoroutinefunction
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse

from . import conf
from .conf import UNSET
from .exceptions import LockBusy
from .keys import KeyTemplate
from .mutex import Mutex
from .responses import refusal
from .revocation import check_listener

P = ParamSpec("P")
R = TypeVar("R")

OnBusy = Literal["raise", "wait", "skip"] | Callable[..., Any]
_POLICIES = ("raise", "wait", "skip")


def zk_locked(
    template: str,
    *,
    timeout: Any = UNSET,
    on_busy: OnBusy | None = None,
    using: str = "default",
    fair: bool = True,
    atomic: bool | str = False,
    on_revoke: Callable[[Mutex], object] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run the decorated function under the lock that `template` names.

    ::

        @zk_locked("stock:<sku>", timeout=2)
        def buy(request, sku): ...

    On functions, methods, function views and class views' ``dispatch``, sync and async. A view
    under ``ATOMIC_REQUESTS`` opens its transaction inside the lock and commits before the release.

    :param template: the key; ``<name>`` is an argument, ``<order.pk>`` follows attributes
    :param timeout: seconds to wait, 0 to try once, None for ever; by default the setting
        ``TIMEOUT`` (5 s)
    :param on_busy: what to do when the lock is busy after `timeout`:
        by default a view answers 423 and a function raises;
        ``"raise"`` raises `LockBusy`;
        ``"wait"`` waits for ever unless `timeout` is given, then raises;
        ``"skip"`` returns None without a call (a view answers 204);
        a callable is called with the `LockBusy` and the arguments, and its result is returned
    :param using: the alias in ``DISTLOCK``
    :param fair: False does not queue, as in `zk_lock`
    :param atomic: True opens a database transaction inside the lock, a text one on that database
    :param on_revoke: called with the lock, in a thread of its own, when somebody asks for it
    :raises LockBusy: see `on_busy`
    :raises LockUnavailable: ZooKeeper did not answer
    :raises LockKeyError: at decoration for a malformed template, at the call for an empty value
    """
    parsed = KeyTemplate(template)
    if not (on_busy is None or on_busy in _POLICIES or callable(on_busy)):
        raise ValueError(
            f"on_busy is one of {', '.join(map(repr, _POLICIES))} or a callable, not {on_busy!r}."
        )
    check_listener(on_revoke)
    if timeout is not UNSET:
        timeout = conf.seconds(timeout)
    if on_busy == "wait" and timeout is UNSET:
        timeout = None
    make_mutex = functools.partial(
        Mutex,
        timeout=timeout,
        using=using,
        fair=fair,
        atomic=atomic,
        on_revoke=on_revoke,
    )

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return cast("Callable[P, R]", _Locked(function, parsed, make_mutex, on_busy).wrapper())

    return decorate


class _Locked:
    """What the wrapper of one decorated function knows; no state of a call."""

    def __init__(
        self,
        function: Callable[..., Any],
        template: KeyTemplate,
        make_mutex: Callable[[str], Mutex],
        on_busy: OnBusy | None,
    ) -> None:
        if inspect.isclass(function) or not callable(function):
            raise TypeError(
                "zk_locked decorates a function. For a class view, decorate its dispatch: "
                '@method_decorator(zk_locked("…"), name="dispatch").'
            )
        inner = inspect.unwrap(function)
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            raise TypeError(
                f"zk_locked cannot lock the generator {inner.__qualname__}: its body runs after "
                "the call has returned. Use `with zk_lock(…):` inside it."
            )
        self.function = function
        self.template = template
        self.make_mutex = make_mutex
        self.on_busy = on_busy
        # method_decorator hands over a partial, perhaps decorated already, whose own wrapped
        # function still has `self`.
        bound = inspect.unwrap(
            function, stop=lambda f: isinstance(f, functools.partial) or hasattr(f, "__signature__")
        )
        self.bound = bound if isinstance(bound, functools.partial) else None
        self.signature = inspect.signature(bound, follow_wrapped=self.bound is None)
        marker = getattr(function, "_non_atomic_requests", None)
        #: Of two locks on one view the inner one opens the transaction.
        self.opens_transaction = not isinstance(marker, _OpensOwnTransaction)
        self.marker = _OpensOwnTransaction(marker or ()) if self.opens_transaction else marker

    def wrapper(self) -> Any:
        """Return the function to use in place of the decorated one."""
        call = self._async_call() if iscoroutinefunction(self.function) else self._sync_call()
        functools.update_wrapper(call, self.function)
        call.__signature__ = self.signature  # Celery's argument check reads it
        call._non_atomic_requests = self.marker  # noqa: SLF001 - Django's own name
        call.distlock = self
        if self.bound is None:  # else it is made anew for every request
            declared.add(self)
        return call

    @property
    def source(self) -> str:
        """Where the function is defined, as file:line."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(self.function)

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
            mutex = self._mutex(args, kwargs)
            with ExitStack() as stack:
                try:
                    hold = stack.enter_context(mutex)
                except LockBusy as busy:
                    return self._busy(busy, args, kwargs)
                for alias in self._databases(args):
                    stack.enter_context(transaction.atomic(using=alias))
                result = self.function(*args, **kwargs)
                if inspect.iscoroutine(result):
                    result.close()
                    raise TypeError(
                        f"{self.name} returned a coroutine, which would run after the lock is "
                        "released. Decorate an `async def`."
                    )
                hold.check()  # nothing is committed under a lost lock
                return result

        return call

    def _async_call(self) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if any(self._databases(args)):  # as Django says, which leaves this view to us
                raise RuntimeError("You cannot use ATOMIC_REQUESTS with async views.")
            mutex = self._mutex(args, kwargs)
            async with AsyncExitStack() as stack:
                try:
                    await stack.enter_async_context(mutex)
                except LockBusy as busy:
                    answer = self._busy(busy, args, kwargs)
                    return await answer if inspect.isawaitable(answer) else answer
                result = self.function(*args, **kwargs)
                return await result if inspect.isawaitable(result) else result

        return call

    def _serves_async(self, args: tuple[Any, ...]) -> bool:
        """Tell whether this is the ``dispatch`` of an async class view: a plain function that
        returns the coroutine of the view's ``async def get``."""
        method = self.bound and self.bound.func
        view = getattr(method, "__self__", None) or next(iter(args), None)
        return getattr(view, "view_is_async", False) is True

    def _mutex(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mutex:
        return self.make_mutex(self.template.bind(self.signature, args, kwargs))

    def _busy(self, busy: LockBusy, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        request = _request_in(args)
        if self.on_busy is None and request is not None:
            return refusal(request, busy)
        if self.on_busy == "skip":
            return None if request is None else HttpResponse(status=204)
        if callable(self.on_busy):
            return self.on_busy(busy, *args, **kwargs)
        raise busy

    def _databases(self, args: tuple[Any, ...]) -> Iterator[str]:
        """Yield the databases whose ``ATOMIC_REQUESTS`` Django left to this wrapper."""
        match = getattr(_request_in(args), "resolver_match", None)
        marker = getattr(getattr(match, "func", None), "_non_atomic_requests", None)
        if self.opens_transaction and isinstance(marker, _OpensOwnTransaction):
            for alias, options in connections.settings.items():
                if options["ATOMIC_REQUESTS"] and alias not in marker.exempt:
                    yield alias


class _OpensOwnTransaction(frozenset[str]):
    """The ``_non_atomic_requests`` of a locked view: it claims every database.

    Django wraps a view in ``atomic()`` from outside, around our lock, so the lock would be released
    before COMMIT (django-pglocks 15). A view that is marked like this is left alone, and opens the
    transaction inside its lock. What the site itself exempts with ``non_atomic_requests`` below our
    decorator is in the set; above it, Django replaces this object, and we leave the view alone.
    Frozen, since all ``as_view()`` of a class share it.
    """

    def __contains__(self, alias: object) -> bool:
        return True

    @property
    def exempt(self) -> frozenset[str]:
        return frozenset(self)


def _request_in(args: tuple[Any, ...]) -> HttpRequest | None:
    """Return the request that a view is called with: first, or after ``self``."""
    return next((arg for arg in args[:2] if isinstance(arg, HttpRequest)), None)


#: The decorated functions, for the system checks.
declared: WeakSet[_Locked] = WeakSet()
