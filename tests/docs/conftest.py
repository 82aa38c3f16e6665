"""The project in which the examples run: the example shop's models, and a real ZooKeeper."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
from celery import _state
from celery.beat import Scheduler
from django.dispatch import Signal
from django.test.utils import isolate_apps
from pytest_django import Settings

import distlock
from distlock.celery import task_refused
from distlock.owner.owner import current
from example_project.shop import models
from tests.docs.names import Names, given
from tests.docs.running import drop_tables
from tests.kit.helpers import eventually

#: What the examples import, and what the reader has written or installed.
MODULES: dict[str, dict[str, Any]] = {
    "pglock": {"advisory": object},
    "payments": {"charge": MagicMock(name="charge")},
    "shop": {"models": models},
    "shop.locks": {"old_lock": MagicMock(name="old_lock")},
    "django_celery_beat": {},
    "django_celery_beat.schedulers": {"DatabaseScheduler": Scheduler},
}


@pytest.fixture
def project(
    distlock_settings: Settings,
    transactional_db: None,  # noqa: ARG001 - for its database
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """The reader's project, with two products. What examples connect or define ends with it."""
    for name, names in MODULES.items():
        made = ModuleType(name)
        vars(made).update(names)
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setitem(sys.modules, "shop.models", models)
    monkeypatch.setenv("ZOOKEEPER_PASSWORD", "secret")
    monkeypatch.setenv("SHOP_KEY_PASSWORD", "secret")
    distlock_settings.ROOT_URLCONF = "example_project.urls"
    for sku in ["lamp", "table"]:
        models.Product.objects.create(sku=sku, name=sku, quantity=10)
    for its_signal in _signals():
        monkeypatch.setattr(its_signal, "receivers", list(its_signal.receivers))
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    # Celery makes the first app of a process the default one, such as a test's that is over.
    monkeypatch.setattr(_state, "default_app", None)
    handler = signal.getsignal(signal.SIGTERM)
    with isolate_apps("example_project.shop"):
        yield
    signal.signal(signal.SIGTERM, handler)
    for its_signal in _signals():
        its_signal.sender_receivers_cache.clear()
    current().release_all()


def _signals() -> list[Signal]:
    return [task_refused, *(getattr(distlock, n) for n in distlock.__all__ if n[:5] == "lock_")]


@pytest.fixture
def names(page: str, project: None) -> Iterator[Names]:  # noqa: ARG001 - made before the names
    """The names of a page's examples. A leader among them is told to stop once it leads."""
    names = given(page)
    ended = threading.Event()

    def stop_the_leader() -> None:
        eventually(lambda: ended.is_set() or getattr(names.get("leader"), "is_leader", False), 60)
        if not ended.is_set():
            names["leader"].stop()

    # Not one of the page's, which its test awaits.
    helper = threading.Thread(target=stop_the_leader, daemon=True)
    helper.start()
    yield names
    ended.set()
    helper.join()
    drop_tables(names)
    forget_tasks(names["__name__"])


def forget_tasks(module: str) -> None:
    """Take the tasks of the examples out of all Celery apps; `project` does so for later apps."""
    for app in _state._get_active_apps():
        for task in [task for task in app.tasks if task.startswith(f"{module}.")]:
            del app.tasks[task]
