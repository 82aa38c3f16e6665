"""What an API of Django REST framework answers for a lock that a view could not get."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.urls import path
from pytest_django import Settings
from rest_framework.decorators import api_view, renderer_classes
from rest_framework.exceptions import NotFound
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from distlock import LockBusy, LockLost, LockUnavailable, zk_locked
from distlock_chaos.ports import free_ports
from tests.testproject.elsewhere import held_elsewhere

pytestmark = pytest.mark.engines("zookeeper", "redis")

HANDLER = "distlock.contrib.rest_framework.exception_handler"


class Stock(APIView):  # type: ignore[misc]  # it has no types
    @zk_locked("stock:42", timeout=0)
    def post(self, request: Request) -> Response:
        return Response({"method": request.method})


class Plain(BaseRenderer):  # type: ignore[misc]
    media_type = "text/plain"
    format = "txt"

    def render(self, data: Any, *args: Any) -> str:
        return str(data["detail"])


@api_view(["POST"])  # type: ignore[untyped-decorator]
@renderer_classes([JSONRenderer, Plain])  # type: ignore[untyped-decorator]
def fails(request: Request, error: str) -> Response:
    Group.objects.create(name=f"made before the {request.method} failed")
    raise {
        "busy": LockBusy("secret", key="secret", using=request.headers.get("Using", "default")),
        "unavailable": LockUnavailable("secret", retry_after=20),
        "lost": LockLost("secret"),
        "missing": NotFound("no such thing"),
    }[error]


urlpatterns = [path("stock/", Stock.as_view()), path("fails/<error>/", fails)]


@pytest.fixture(autouse=True)
def _site(settings: Settings) -> None:
    settings.ROOT_URLCONF = __name__
    settings.REST_FRAMEWORK = {
        "EXCEPTION_HANDLER": HANDLER,
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "UNAUTHENTICATED_USER": None,
    }


def post(path: str, accept: str = "application/json", using: str = "default") -> Any:
    client = Client(raise_request_exception=False)
    return client.post(path, headers={"accept": accept, "using": using})


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.django_db
def test_a_free_lock_changes_nothing() -> None:
    response = post("/stock/")
    assert response.status_code == 200
    assert response.json() == {"method": "POST"}
    assert "Retry-After" not in response


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.django_db
def test_a_busy_lock_is_423_with_the_time_to_come_back() -> None:
    with held_elsewhere("stock:42"):
        response = post("/stock/")
    assert response.status_code == 423
    assert int(response["Retry-After"]) in {1, 2}
    assert response["Cache-Control"] == "no-store"
    assert response["Content-Type"] == "application/problem+json"
    assert response.json() == {
        "type": "about:blank",
        "title": "Somebody else is working on this right now",
        "status": 423,
        "detail": f"Try again in {response['Retry-After']} s.",
    }


@pytest.mark.django_db
def test_an_absent_zookeeper_is_503(settings: Settings) -> None:
    (port,) = free_ports(1)
    away = {"HOSTS": f"127.0.0.1:{port}", "CONNECT_TIMEOUT": 0.2, "RETRY_AFTER": 7}
    settings.DISTLOCK = {"default": away}
    response = post("/stock/")
    assert response.status_code == response.json()["status"] == 503
    assert 7 <= int(response["Retry-After"]) <= 14


@pytest.mark.django_db
@pytest.mark.parametrize("error", ["busy", "unavailable"])
@pytest.mark.parametrize("accept", ["application/json", "text/plain"])
def test_it_tells_no_details_in_the_format_that_was_asked_for(error: str, accept: str) -> None:
    response = post(f"/fails/{error}/", accept)
    assert b"secret" not in response.content
    assert b"Try again in" in response.content
    assert accept in response["Content-Type"].replace("problem+", "")
    assert "Retry-After" in response


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", ["busy", "unavailable"])
def test_what_the_view_has_written_is_rolled_back(
    monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert post(f"/fails/{error}/").status_code in {423, 503}
    assert not Group.objects.exists()


@pytest.mark.django_db
def test_all_else_is_answered_as_ever() -> None:
    missing = post("/fails/missing/")
    assert (missing.status_code, missing.json()) == (404, {"detail": "no such thing"})
    assert post("/fails/lost/").status_code == 500
