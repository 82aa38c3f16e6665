"""E004: locks inside the transaction of ATOMIC_REQUESTS. The check finds them, each call raises."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import URLPattern, URLResolver, include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from pytest_django import Settings
from rest_framework.decorators import action, api_view, permission_classes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.viewsets import ViewSet

from distlock import LockInTransaction, zk_limited, zk_locked
from tests.checks.tools import found, messages
from tests.kit.helpers import Urls

exempt = transaction.non_atomic_requests


@pytest.fixture(autouse=True)
def _atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)


class LockedPost(View):
    @method_decorator(zk_locked("stock:<sku>"))
    def post(self, request: HttpRequest, sku: str) -> HttpResponse:
        return HttpResponse()


class LockedBelow(View):
    @method_decorator(csrf_exempt)
    @zk_locked("stock:<sku>")
    def post(self, request: HttpRequest, sku: str) -> HttpResponse:
        return HttpResponse()


@transaction.atomic
@csrf_exempt
@zk_locked("stock:<sku>")
def locked_below_atomic(request: HttpRequest, sku: str) -> HttpResponse:  # noqa: ARG001
    return HttpResponse()


class DispatchBelowAtomic(View):
    @transaction.atomic(using="default")
    @zk_locked("stock:<sku>")
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, **kwargs)


class InheritsLockedPost(LockedPost):
    pass


@method_decorator(zk_locked("stock:<sku>"), name="dispatch")
class LockedDispatch(View):
    def post(self, request: HttpRequest, sku: str) -> HttpResponse:
        return HttpResponse()


@method_decorator(exempt, name="dispatch")
class NotAtomic(LockedPost):
    pass


@zk_locked("stock:<sku>")
def locked_function(request: Request, sku: str) -> Response:  # noqa: ARG001
    return Response()


class LockedAction(ViewSet):  # type: ignore[misc]  # it has no types
    @action(["post"], detail=True)  # type: ignore[untyped-decorator]
    @zk_locked("stock:<pk>")
    def reserve(self, request: Request, pk: str) -> Response:
        return Response()

    def list(self, request: Request) -> Response:
        return Response()


def router_of(view_set: type[ViewSet]) -> URLResolver:
    router = SimpleRouter()
    router.register("stock", view_set, basename="stock")
    return path("", include(router.urls))


api = api_view(["POST"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (path("stock/<sku>/reserve/", LockedPost.as_view()), "LockedPost.post"),
        (path("stock/<sku>/reserve/", LockedBelow.as_view()), "LockedBelow.post"),
        (path("stock/<sku>/reserve/", InheritsLockedPost.as_view()), "InheritsLockedPost.post"),
        (path("stock/<sku>/reserve/", api(locked_function)), "locked_function"),
        (
            path("stock/<sku>/reserve/", api(permission_classes([])(locked_function))),
            "locked_function",
        ),
        (router_of(LockedAction), "LockedAction.reserve"),
    ],
    ids=["method", "below another", "inherited", "api_view", "api_view and more", "action"],
)
def test_the_wrong_order_is_found_and_each_call_raises(
    pattern: URLPattern | URLResolver, name: str, right: Settings
) -> None:
    right.REST_FRAMEWORK = {"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None}
    right.ROOT_URLCONF = Urls(pattern)
    (message,) = messages()
    assert message.id == "distlock.E004"
    assert f"{__name__}.{name}() is locked inside" in message.msg
    assert 'name="dispatch"' in str(message.hint)
    assert "above @api_view" in str(message.hint)
    with pytest.raises(LockInTransaction, match=r"dispatch\(\)"):
        Client().post("/stock/lamp/reserve/")


@pytest.mark.django_db
@pytest.mark.parametrize("atomic_requests", [True, False])
def test_a_lock_below_atomic_is_found_also_without_atomic_requests(
    right: Settings, monkeypatch: pytest.MonkeyPatch, atomic_requests: bool
) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", atomic_requests)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    views: list[Any] = [locked_below_atomic, DispatchBelowAtomic.as_view()]
    for view in views:
        right.ROOT_URLCONF = Urls(path("stock/<sku>/reserve/", view))
        assert found() == ["distlock.E004"]
        with pytest.raises(LockInTransaction) as raised:
            Client().post("/stock/lamp/reserve/")
        assert ("non_atomic_requests" in str(raised.value)) == atomic_requests


def test_views_in_included_and_decorated_patterns_are_found_once(right: Settings) -> None:
    right.ROOT_URLCONF = Urls(
        path("shop/", include([path("<sku>", csrf_exempt(LockedPost.as_view()))])),
        path("other/<sku>", LockedPost.as_view()),
    )
    assert [message.id for message in messages(tags=["urls"])] == ["distlock.E004"]


def test_one_exempt_pattern_does_not_hide_another(right: Settings) -> None:
    right.ROOT_URLCONF = Urls(
        path("exempt/<sku>", exempt(LockedPost.as_view())),
        path("buy/<sku>", LockedPost.as_view()),
    )
    assert found() == ["distlock.E004"]


def test_it_is_quiet_for_the_right_orders(right: Settings) -> None:
    function: Any = locked_function
    right.ROOT_URLCONF = Urls(
        *(path("", view.as_view()) for view in (LockedDispatch, NotAtomic, View)),
        path("exempt/<sku>", exempt(api(locked_function))),
        path("above/<sku>", zk_locked("stock:<sku>")(api(function.__wrapped__))),
        path("kept/<sku>", api(zk_locked("stock:<sku>", until="commit")(function.__wrapped__))),
        path("below/<sku>", zk_locked("stock:<sku>")(transaction.atomic(function.__wrapped__))),
        path("limited/<sku>", api(zk_limited("stock:<sku>", 3)(function.__wrapped__))),
        router_of(method_decorator(exempt, name="dispatch")(type("E", (LockedAction,), {}))),
    )
    assert found() == []


def test_it_is_quiet_where_nothing_would_raise(
    right: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    right.ROOT_URLCONF = Urls(path("buy/<sku>", LockedPost.as_view()))
    right.DISTLOCK = {"default": {**right.DISTLOCK["default"], "IN_TRANSACTION": "allow"}}
    assert found() == []
    right.DISTLOCK["default"]["IN_TRANSACTION"] = "raise"
    assert found() == ["distlock.E004"]
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", False)
    assert found() == []
