"""The system checks: each says what is wrong once, is quiet otherwise, and none of them connects.

uWSGI without threads, no ACL, no TLS, ATOMIC_REQUESTS; and no check opens a connection.
"""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import action, api_view, permission_classes
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.viewsets import ViewSet

from distlock import zk_locked
from distlock.checks import MIDDLEWARE
from distlock.session import registry
from tests.checks.tools import found, messages
from tests.kit.helpers import Urls

if TYPE_CHECKING:
    from django.urls import URLResolver
    from pytest_django import Settings
    from rest_framework.request import Request


pytestmark = pytest.mark.usefixtures("own_functions")


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)


def test_right_settings_are_quiet() -> None:
    assert found(deploy=True) == []


def test_no_settings_at_all_are_quiet(settings: Settings) -> None:
    del settings.DISTLOCK
    assert found() == []


@pytest.mark.parametrize("value", [None, [], "127.0.0.1", {}, {"inventory": {}}])
def test_e001_no_dict_with_a_default_alias(value: Any, settings: Settings) -> None:
    settings.DISTLOCK = value
    (message,) = messages()
    assert message.id == "distlock.E001"
    assert 'DISTLOCK = {"default": {"HOSTS": ' in str(message.hint)


def test_e002_a_wrong_setting_of_any_alias(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": ""}, "inventory": {"HOTS": "zk1", "TIMEOUT": "5"}}
    said = messages()
    assert [message.id for message in said] == ["distlock.E002"] * 3
    assert said[0].msg == "DISTLOCK['default']['HOSTS'] is not valid: ''."
    assert (said[0].hint or "").startswith('Write text such as "zk1:2181,zk2:2181,zk3:2181", or')
    assert said[1].hint == "Did you mean 'HOSTS'?"
    assert "DISTLOCK['inventory']['TIMEOUT']" in said[2].msg


class LockedPost(View):
    @method_decorator(zk_locked("stock:<sku>"))
    def post(self, request: HttpRequest, sku: str) -> HttpResponse:
        return HttpResponse()


class LockedGet(View):
    @zk_locked("stock:<sku>")
    def get(self, request: HttpRequest, sku: str) -> HttpResponse:
        return HttpResponse()


class InheritsLockedPost(LockedPost):
    pass


@method_decorator(zk_locked("stock:<sku>"), name="dispatch")
class LockedDispatch(View):
    def post(self, request: HttpRequest, sku: str) -> HttpResponse:
        return HttpResponse()


@method_decorator(transaction.non_atomic_requests, name="dispatch")
class NotAtomic(LockedPost):
    pass


@pytest.mark.usefixtures("atomic_requests")
@pytest.mark.parametrize(
    ("view_class", "method"),
    [(LockedPost, "post"), (LockedGet, "get"), (InheritsLockedPost, "post")],
)
def test_e004_a_locked_method_under_atomic_requests(
    view_class: type[View], method: str, right: Settings
) -> None:
    right.ROOT_URLCONF = Urls(path("buy/<sku>", view_class.as_view()))
    (message,) = messages()
    assert message.id == "distlock.E004"
    assert f"{view_class.__qualname__}.{method}()" in message.msg
    assert "released before COMMIT" in message.msg
    assert 'name="dispatch"' in str(message.hint)


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


@pytest.mark.usefixtures("atomic_requests")
def test_e004_an_action_of_a_view_set(right: Settings) -> None:
    right.ROOT_URLCONF = Urls(router_of(LockedAction))
    (message,) = messages()
    assert message.id == "distlock.E004"
    assert "LockedAction.reserve()" in message.msg
    assert "atomic=True" in str(message.hint)


@pytest.mark.usefixtures("atomic_requests")
@pytest.mark.parametrize("between", [lambda function: function, permission_classes([])])
def test_e004_a_function_below_api_view(right: Settings, between: Any) -> None:
    right.ROOT_URLCONF = Urls(path("buy/<sku>", api_view(["POST"])(between(locked_function))))
    (message,) = messages()
    assert message.id == "distlock.E004"
    assert f"{__name__}.locked_function()" in message.msg
    assert "@zk_locked above @api_view" in str(message.hint)


@pytest.mark.usefixtures("atomic_requests")
def test_e004_is_quiet_for_the_right_orders_of_an_api(right: Settings) -> None:
    exempt = transaction.non_atomic_requests
    api = api_view(["POST"])
    exempt_view_set = method_decorator(exempt, name="dispatch")(type("Exempt", (LockedAction,), {}))
    right.ROOT_URLCONF = Urls(
        path("exempt/<sku>", exempt(api(locked_function))),
        path("above/<sku>", zk_locked("stock:<sku>")(api(locked_function.__wrapped__))),  # type: ignore[attr-defined]
        router_of(exempt_view_set),
    )
    assert found() == []


@pytest.mark.usefixtures("atomic_requests")
def test_e004_finds_views_in_included_and_decorated_patterns(right: Settings) -> None:
    right.ROOT_URLCONF = Urls(
        path("shop/", include([path("<sku>", csrf_exempt(LockedPost.as_view()))])),
        path("other/<sku>", LockedPost.as_view()),
    )
    assert found() == ["distlock.E004"]


@pytest.mark.usefixtures("atomic_requests")
def test_e004_one_exempt_pattern_does_not_hide_another(right: Settings) -> None:
    right.ROOT_URLCONF = Urls(
        path("exempt/<sku>", transaction.non_atomic_requests(LockedPost.as_view())),
        path("buy/<sku>", LockedPost.as_view()),
    )
    assert found() == ["distlock.E004"]


@pytest.mark.usefixtures("atomic_requests")
@pytest.mark.parametrize("view_class", [LockedDispatch, NotAtomic, View])
def test_e004_is_quiet_for_what_is_right(view_class: type[View], right: Settings) -> None:
    right.ROOT_URLCONF = Urls(path("buy/<sku>", view_class.as_view()))
    assert found() == []


def test_e004_is_quiet_without_atomic_requests(right: Settings) -> None:
    right.ROOT_URLCONF = Urls(path("buy/<sku>", LockedPost.as_view()))
    assert found() == []


def test_w001_the_middleware_is_missing(right: Settings) -> None:
    right.MIDDLEWARE = []
    (message,) = messages()
    assert message.id == "distlock.W001"
    assert MIDDLEWARE in message.msg
    assert "423" in str(message.hint)


def test_w001_is_quiet_for_a_project_without_urls(right: Settings) -> None:
    right.MIDDLEWARE = []
    right.ROOT_URLCONF = None
    assert found() == []


def test_w002_the_middleware_is_there_twice(right: Settings) -> None:
    right.MIDDLEWARE = [MIDDLEWARE, MIDDLEWARE]
    assert found() == ["distlock.W002"]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, ["distlock.E005"]),
        ({"workers": b"4"}, ["distlock.E005"]),
        ({"enable-threads": b"true"}, []),
        ({"enable-threads": True}, []),
        ({"threads": b"2"}, []),
    ],
)
def test_e005_uwsgi_without_threads(
    options: dict[str, Any], ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(opt=options))
    assert found() == ids


def test_e007_the_embedded_server_in_production(
    right: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    right.DISTLOCK = {"default": {}, "inventory": {"HOSTS": ["embedded"]}}
    assert found() == []  # tests run without DEBUG
    monkeypatch.delattr("django.test.utils._TestState.saved_data")
    right.DEBUG = True
    assert found() == []
    right.DEBUG = False
    (message,) = messages()
    assert message.id == "distlock.E007"
    assert "'inventory'" in message.msg
    assert "for development: one process, nothing on disk, no replication" in message.msg


def test_w003_lock_nodes_that_anybody_may_delete(right: Settings) -> None:
    right.DISTLOCK = {"default": {"TLS": {"ca": "x"}}}
    assert found(deploy=True) == ["distlock.W003"]


def test_w004_a_connection_that_anybody_may_read(right: Settings) -> None:
    right.DISTLOCK = {"default": {"AUTH": [("digest", "a:b")], "ACL": "creator"}}
    assert found(deploy=True) == ["distlock.W004"]


def test_deployment_warnings_come_for_each_alias(right: Settings) -> None:
    right.DISTLOCK = {"default": {}, "inventory": {}}
    said = messages(deploy=True)
    assert [message.id for message in said] == ["distlock.W003", "distlock.W004"] * 2
    assert [("'inventory'" in message.msg) for message in said] == [False, False, True, True]


def test_deployment_warnings_come_only_with_deploy(right: Settings) -> None:
    right.DISTLOCK = {"default": {}}
    assert found() == []


@pytest.mark.parametrize("value", [None, [], {"default": None}])
def test_the_deployment_check_survives_settings_of_a_wrong_shape(
    value: Any, right: Settings
) -> None:
    right.DISTLOCK = value
    assert [i for i in found(deploy=True) if str(i).startswith("distlock.W")] == []


def test_every_message_says_what_to_do(right: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(opt={}))
    right.DISTLOCK = {"default": {"HOTS": "zk1"}}
    right.MIDDLEWARE = []
    said = messages(deploy=True)
    assert len(said) == 5
    assert all(message.hint for message in said)


def test_no_check_connects(right: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("A check has opened a connection.")

    registry.close_sessions()
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(registry, "Session", refuse)
    right.DISTLOCK = {"default": {}}
    assert found(deploy=True)
    assert not registry.sessions()
