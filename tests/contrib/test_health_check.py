"""What django-health-check is told of the lock servers, by its own view."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import AsyncRequestFactory
from health_check.views import HealthCheckView
from pytest_django import Settings

from distlock_chaos.ports import free_ports
from distlock_chaos.proxy import TcpProxy
from tests.kit.tools import PATIENCE, await_connection

pytestmark = pytest.mark.engines("zookeeper", "redis")

CHECK = "distlock.contrib.health_check.Locks"


def ask(**options: Any) -> tuple[int, dict[str, str]]:
    """The status of the view, and what it says of each check."""
    options = {"timeout": timedelta(seconds=PATIENCE), **options}
    view = HealthCheckView.as_view(checks=[(CHECK, options)])
    request = AsyncRequestFactory().get("/health/", {"format": "json"})
    response = asyncio.run(view(request))
    return response.status_code, json.loads(response.content)


@pytest.mark.usefixtures("tree")
def test_a_server_that_answers_is_well() -> None:
    for _ in range(2):  # the second time over the same session
        assert ask() == (200, {"Locks(using='default')": "OK"})
    assert ask(using="other") == (200, {"Locks(using='other')": "OK"})


def test_a_server_that_is_away_is_said_without_its_address(settings: Settings) -> None:
    (port,) = free_ports(1)
    settings.DISTLOCK = {"default": {"HOSTS": f"127.0.0.1:{port}"}}
    said = {"Locks(using='default')": "Unavailable: No answer in 0.5 s"}
    assert ask(timeout=timedelta(seconds=0.5)) == (500, said)


def test_a_server_that_accepts_and_does_not_answer_is_away(broken_link: TcpProxy) -> None:
    await_connection()
    assert ask()[0] == 200
    broken_link.black_hole()
    status, said = ask(timeout=timedelta(seconds=0.5))
    assert status == 500
    (text,) = said.values()
    assert text in {"Unavailable: No answer in 0.5 s", "Unavailable: The connection was lost"}
    broken_link.pass_through()
    assert ask()[0] == 200


@pytest.mark.parametrize("using", ["default", "elsewhere"])
def test_wrong_settings_are_said_without_their_values(settings: Settings, using: str) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": "secret host"}}
    said = {f"Locks(using={using!r})": "Unavailable: DISTLOCK is not set up correctly"}
    assert ask(using=using) == (500, said)
