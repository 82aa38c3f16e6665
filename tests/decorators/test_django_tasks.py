"""Django's own tasks: ``@task`` above ``@zk_locked`` (the backport stands in before Django 6)."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from pytest_django import Settings

from distlock import zk_lock, zk_locked
from tests.testproject.elsewhere import held_elsewhere

PACKAGE = "django.tasks" if find_spec("django.tasks") else "django_tasks"
task: Any = import_module(PACKAGE).task

pytestmark = pytest.mark.usefixtures("distlock_settings")


@task
@zk_locked("feed:<feed_id>", timeout=0)
def refresh(feed_id: int) -> bool:
    return zk_lock(f"feed:{feed_id}").held


@task
@zk_locked("feed:<feed_id>", timeout=0)
async def arefresh(feed_id: int) -> bool:
    return zk_lock(f"feed:{feed_id}").held


@pytest.fixture(autouse=True)
def _immediate(settings: Settings) -> None:
    backend = f"{PACKAGE}.backends.immediate.ImmediateBackend"
    settings.TASKS = {"default": {"BACKEND": backend}}


@pytest.mark.parametrize("locked", [refresh, arefresh], ids=["sync", "async"])
def test_a_task_runs_under_its_lock(locked: Any) -> None:
    assert locked.enqueue(7).return_value is True
    assert locked.enqueue(feed_id=7).return_value is True
    assert not zk_lock("feed:7").held


def test_a_task_whose_lock_is_busy_fails_and_says_who_holds() -> None:
    with held_elsewhere("feed:7", work="the test"):
        result = refresh.enqueue(7)
    assert result.status == "FAILED"
    assert "LockBusy" in result.errors[0].exception_class_path
    assert "the test" in result.errors[0].traceback
