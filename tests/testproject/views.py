"""Views that add one to a counter as most code does: read, decide, write.

Each is locked in another way; under ``ATOMIC_REQUESTS`` only the lock outside of the transaction
loses no update.
"""

# ruff: noqa: ARG001 - the views are called for their locks

from __future__ import annotations

import os
import threading
from functools import wraps
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.generic import UpdateView

from distlock import zk_lock, zk_locked
from tests.testproject.models import Counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.forms import ModelForm

    _UpdateCounter = UpdateView[Counter, ModelForm[Counter]]
else:
    _UpdateCounter = UpdateView  # generic for the type checker only

KEY = "counter:<name>"
WAIT = 30


def increment(name: str) -> HttpResponse:
    counter = Counter.objects.get(name=name)
    return write(counter)


def write(counter: Counter) -> HttpResponse:
    seen = counter.value
    counter.value = seen + 1
    counter.save(update_fields=["value"])
    return JsonResponse(
        {"seen": seen, "pid": os.getpid(), "in_transaction": connection.in_atomic_block}
    )


def naive_locked(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Lock around the view, as other packages' decorators do (django-pglocks 15)."""

    @wraps(view)
    def locked(request: HttpRequest, name: str) -> HttpResponse:
        # The alias differs from "default" only in that it allows this mistake.
        with zk_lock(f"counter:{name}", timeout=WAIT, using="careless"):
            return view(request, name=name)

    return locked


def signed_in(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Stand in for ``login_required``: a decorator that keeps the view's attributes."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method != "POST":
            return HttpResponse(status=403)
        return view(request, *args, **kwargs)

    return wrapper


def unlocked(request: HttpRequest, name: str) -> HttpResponse:
    return increment(name)


@naive_locked
def naive(request: HttpRequest, name: str) -> HttpResponse:
    return increment(name)


@zk_locked(KEY, timeout=WAIT)
def function(request: HttpRequest, name: str) -> HttpResponse:
    return increment(name)


@signed_in
@zk_locked(KEY, timeout=WAIT)
def below_another_decorator(request: HttpRequest, name: str) -> HttpResponse:
    return increment(name)


@zk_locked(KEY, timeout=WAIT)
@signed_in
def above_another_decorator(request: HttpRequest, name: str) -> HttpResponse:
    return increment(name)


@zk_locked("till:<name>", timeout=WAIT)
@zk_locked(KEY, timeout=WAIT)
def two_locks(request: HttpRequest, name: str) -> HttpResponse:
    return increment(name)


@transaction.non_atomic_requests
@zk_locked(KEY, timeout=WAIT)
def exempt_above(request: HttpRequest, name: str) -> HttpResponse:
    return increment(name)


@zk_locked(KEY, timeout=WAIT)
@transaction.non_atomic_requests
def exempt_below(request: HttpRequest, name: str) -> HttpResponse:
    return increment(name)


@zk_locked(KEY, timeout=WAIT)
def fails(request: HttpRequest, name: str) -> HttpResponse:
    increment(name)
    raise ZeroDivisionError


async def async_body(request: HttpRequest, name: str) -> HttpResponse:
    return JsonResponse({"held": zk_lock(f"counter:{name}").held})


@method_decorator(zk_locked(KEY, timeout=WAIT), name="dispatch")
class AsyncDispatch(View):
    async def post(self, request: HttpRequest, name: str) -> HttpResponse:
        return await async_body(request, name)


@method_decorator(zk_locked(KEY, timeout=WAIT), name="dispatch")
class ExemptAsyncDispatch(View):
    async def post(self, request: HttpRequest, name: str) -> HttpResponse:
        return await async_body(request, name)


@method_decorator(zk_locked(KEY, timeout=WAIT), name="dispatch")
class TwoUrls(View):
    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        return increment(name)


@method_decorator(zk_locked(KEY, timeout=WAIT), name="dispatch")
class Dispatch(View):
    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        return increment(name)


@method_decorator([never_cache, zk_locked(KEY, timeout=WAIT), signed_in], name="dispatch")
class DispatchOfSeveral(View):
    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        return increment(name)


class OwnDispatch(View):
    @zk_locked(KEY, timeout=WAIT)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest, name: str) -> HttpResponse:
        return increment(name)


@method_decorator(zk_locked("counter:<pk>", timeout=WAIT), name="dispatch")
class Generic(_UpdateCounter):
    model = Counter
    fields = ()

    def form_valid(self, form: ModelForm[Counter]) -> HttpResponse:
        return write(self.object)


LOCKED = {
    "function": function,
    "below-another-decorator": below_another_decorator,
    "above-another-decorator": above_another_decorator,
    "two-locks": two_locks,
    "dispatch": Dispatch.as_view(),
    "dispatch-of-several": DispatchOfSeveral.as_view(),
    "own-dispatch": OwnDispatch.as_view(),
    "one-url-of-two": TwoUrls.as_view(),
}
ASYNC = {
    "async-function": zk_locked(KEY, timeout=WAIT)(async_body),
    "async-dispatch": AsyncDispatch.as_view(),
}
EXEMPT_ASYNC = {
    "exempt-async-function": transaction.non_atomic_requests(
        zk_locked(KEY, timeout=WAIT)(async_body)
    ),
    "exempt-async-dispatch": transaction.non_atomic_requests(ExemptAsyncDispatch.as_view()),
}
EXEMPT = {
    "exempt-above": exempt_above,
    "exempt-below": exempt_below,
    "exempt-url-of-two": transaction.non_atomic_requests(TwoUrls.as_view()),
}


def leave_locked_in_a_thread(request: HttpRequest, name: str) -> HttpResponse:
    """Let a thread of this worker hold the lock for as long as the worker lives."""
    holding = threading.Event()

    def hold() -> None:
        with zk_lock(f"counter:{name}"):
            holding.set()
            threading.Event().wait()

    threading.Thread(target=hold, daemon=True).start()
    return JsonResponse({"pid": os.getpid(), "held": holding.wait(10)})
