"""What a web client is told when its request had to give way."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from pytest_django import Settings

from distlock import DeadlockDetected
from distlock.keys.znodes import Participant
from distlock.middleware import DistlockMiddleware
from distlock.responses import is_refused

ONE = Participant(path="/x/lock-0000000001", sequence=1, token=7, session_id=5)
IN_A_CIRCLE = DeadlockDetected("secret", cycle=(ONE, ONE), retry_after=7.0, using="stock")
BY_ITSELF = DeadlockDetected("a mistake")


@pytest.fixture
def middleware(settings: Settings) -> DistlockMiddleware:
    settings.DISTLOCK = {"default": {}, "stock": {"BUSY_STATUS": 409}}

    return DistlockMiddleware(lambda _: HttpResponse())


def test_it_is_the_answer_of_a_busy_lock(
    middleware: DistlockMiddleware, rf: RequestFactory
) -> None:
    answer = middleware.process_exception(rf.get("/"), IN_A_CIRCLE)
    assert answer is not None
    assert answer.status_code == 409
    assert 7 <= int(answer["Retry-After"]) <= 14
    assert b"secret" not in answer.content


def test_who_waits_for_itself_has_made_a_mistake(
    middleware: DistlockMiddleware, rf: RequestFactory
) -> None:
    assert middleware.process_exception(rf.get("/"), BY_ITSELF) is None


def test_the_rest_framework_says_the_same(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {}, "stock": {"BUSY_STATUS": 409}}
    rest_framework: Any = pytest.importorskip("distlock.contrib.rest_framework")
    context = {"request": HttpRequest()}
    assert rest_framework.exception_handler(IN_A_CIRCLE, context).status_code == 409
    assert rest_framework.exception_handler(BY_ITSELF, context) is None


def test_nothing_else_is_a_refusal() -> None:
    assert not is_refused(ValueError())
