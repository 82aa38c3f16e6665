"""The answer of a refusal itself: headers, the kind of document, and what it does not tell."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import django
import pytest
from django.http import HttpRequest
from django.test import RequestFactory
from pytest_django import Settings

from distlock import LockBusy, LockUnavailable, TooManyLocks, responses
from distlock.responses import refusal
from tests.testproject.templates import TEMPLATES

BUSY = LockBusy("secret details", key="order:secret", retry_after=2.5)
AWAY = LockUnavailable("secret hosts", key="order:secret", retry_after=2.5)
both = pytest.mark.parametrize("error", [BUSY, AWAY], ids=["busy", "unavailable"])


@pytest.fixture(autouse=True)
def _templates(settings: Settings) -> None:
    settings.TEMPLATES = TEMPLATES


def get(accept: str | None = None) -> HttpRequest:
    request = HttpRequest()
    request.method = "GET"
    if accept is not None:
        request.META["HTTP_ACCEPT"] = accept
    return request


@pytest.mark.parametrize(("error", "status"), [(BUSY, 423), (AWAY, 503)])
def test_the_status_tells_busy_from_unavailable(error: Any, status: int) -> None:
    assert refusal(get(), error).status_code == status
    assert json.loads(refusal(get("application/json"), error).content)["status"] == status


def test_the_status_of_busy_is_a_setting_of_the_alias(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {}, "stock": {"BUSY_STATUS": 409}}
    assert refusal(get(), LockBusy("busy")).status_code == 423
    assert refusal(get(), LockBusy("busy", using="stock")).status_code == 409
    assert refusal(get(), LockUnavailable("away", using="stock")).status_code == 503


@both
@pytest.mark.parametrize(("drawn", "seconds"), [(1.0, "3"), (1.2, "3"), (1.5, "4"), (2.0, "5")])
def test_retry_after_is_rounded_up(
    monkeypatch: pytest.MonkeyPatch, error: Any, drawn: float, seconds: str
) -> None:
    monkeypatch.setattr("random.uniform", lambda *_: drawn)
    assert refusal(get(), error)["Retry-After"] == seconds


@both
def test_retry_after_is_spread_between_once_and_twice(error: Any) -> None:
    drawn = {int(refusal(get(), error)["Retry-After"]) for _ in range(200)}
    assert drawn == {3, 4, 5}


def test_retry_after_is_one_second_at_least() -> None:
    busy = LockBusy("busy", retry_after=0.01)
    assert refusal(get(), busy)["Retry-After"] == "1"


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "application/problem+json",
        "application/json, text/html;q=0.9",
        "application/json;q=0.9, text/html;q=0.1",
    ],
)
def test_who_prefers_json_gets_a_problem_document(accept: str) -> None:
    response = refusal(get(accept), BUSY)
    assert response["Content-Type"] == "application/problem+json"
    document = json.loads(response.content)
    assert set(document) == {"type", "title", "status", "detail"}
    assert f"{response['Retry-After']} s" in document["detail"]


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "text/html, application/json;q=0.9",
        "image/png",
    ],
)
def test_everybody_else_gets_a_page(accept: str | None) -> None:
    response = refusal(get(accept), BUSY)
    assert response["Content-Type"].startswith("text/html")
    assert f"{response['Retry-After']} s" in response.content.decode()


@both
@pytest.mark.parametrize("accept", [None, "application/json"])
def test_it_tells_neither_key_nor_holder_nor_server(error: Any, accept: str | None) -> None:
    assert b"secret" not in refusal(get(accept), error).content


@both
def test_it_depends_on_nothing_that_the_client_sent(rf: RequestFactory, error: Any) -> None:
    response = refusal(rf.get("/<script>alert(1)</script>", {"q": "<script>"}), error)
    assert b"alert(" not in response.content
    assert response.content.count(b"<script") == 1


def test_debug_shows_the_reason_of_a_503_on_the_page_alone(settings: Settings) -> None:
    settings.DEBUG = True
    away = LockUnavailable("No <server> answers.")
    assert "No &lt;server&gt; answers." in refusal(get(), away).content.decode()
    assert b"answers" not in refusal(get("application/json"), away).content
    assert b"secret" not in refusal(get(), BUSY).content


def test_the_reason_of_each_503_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    refusal(get(), LockUnavailable("away"))
    refusal(get("application/json"), TooManyLocks("too many"))
    refusal(get(), BUSY)
    assert [record.args for record in caplog.records] == [("away",), ("too many",)]


@both
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE"])
def test_the_page_claims_no_rollback_and_repeats_safe_methods_alone(
    error: Any, method: str
) -> None:
    request = get()
    request.method = method
    page = refusal(request, error).content.decode()
    assert "Nothing was changed" not in page
    assert ("This page tries again once by itself." in page) == (method in {"GET", "HEAD"})
    assert ("Go back and send the form again." in page) == (method not in {"GET", "HEAD"})


def test_the_page_loads_nothing_and_does_not_refresh_without_end() -> None:
    page = refusal(get(), BUSY).content.decode()
    assert re.findall(r"http-equiv|src=|<link|url\(|@import", page) == []
    assert "Refresh" not in refusal(get(), BUSY)


def test_a_nonce_of_django_csp_is_in_the_page() -> None:
    request = get()
    request.csp_nonce = "abc"  # type: ignore[attr-defined]
    assert refusal(request, BUSY).content.count(b' nonce="abc"') == 2


if django.VERSION >= (6,):

    def test_the_nonce_of_djangos_own_csp_is_in_the_page(rf: RequestFactory) -> None:
        csp = import_module("django.middleware.csp")
        request = rf.get("/")
        middleware = csp.ContentSecurityPolicyMiddleware(lambda request: refusal(request, BUSY))
        page = middleware(request).content.decode()
        assert page.count(f' nonce="{csp.get_nonce(request)}"') == 2


@pytest.mark.parametrize(("error", "template"), [(BUSY, "423"), (AWAY, "503")])
def test_a_site_overrides_the_page_and_its_texts_are_escaped(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: Any,
    template: str,
) -> None:
    page = tmp_path / "distlock" / f"{template}.html"
    page.parent.mkdir()
    page.write_text("ours {{ title }} {{ seconds }} {{ request.method }}")
    options = {"context_processors": ["django.template.context_processors.request"]}
    settings.TEMPLATES = [{**TEMPLATES[0], "DIRS": [tmp_path], "OPTIONS": options}]
    monkeypatch.setattr(responses, "_", lambda text: f"<b>{text}</b>")
    response = refusal(get(), error)
    text = response.content.decode()
    assert text.startswith("ours &lt;b&gt;")
    assert text.endswith(f"&lt;/b&gt; {response['Retry-After']} GET")


@both
@pytest.mark.parametrize("templates", [[], [{**TEMPLATES[0], "APP_DIRS": False}]])
def test_a_site_without_templates_gets_a_text(
    settings: Settings, error: Any, templates: Any
) -> None:
    settings.TEMPLATES = templates
    response = refusal(get(), error)
    assert response.status_code in {423, 503}
    assert response["Content-Type"].startswith("text/plain")
    assert f"{response['Retry-After']} s" in response.content.decode()
