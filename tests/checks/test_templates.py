"""The checks of key templates, E003 and W005: also of what nobody has imported."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from celery import Celery, signals
from celery.fixups.django import DjangoFixup
from django.core import checks

from distlock import zk_locked
from tests.checks.tools import found, messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.http import HttpRequest
    from pytest_django import Settings

pytestmark = pytest.mark.usefixtures("own_functions")


def test_e003_a_template_that_names_no_argument() -> None:
    @zk_locked("stock:<skew>:<user.pk>:<sku>")
    def buy(request: HttpRequest, sku: str) -> None: ...

    (message,) = messages()
    assert message.id == "distlock.E003"
    assert "test_e003_a_template_that_names_no_argument.<locals>.buy" in message.msg
    assert "'skew', 'user'" in message.msg
    assert message.hint == "It has: request, sku."


def test_e003_is_quiet_for_templates_that_fit() -> None:
    @zk_locked("report")
    def report() -> None: ...

    @zk_locked("<sku>:<kind>")
    def deduct(sku: str, *, kind: str = "") -> None: ...

    @zk_locked("<anything>")
    def view(request: HttpRequest, **captured: str) -> None: ...

    declared = (report, deduct, view)  # the check knows functions for as long as they live
    assert found() == []
    del declared


def test_e003_says_where_the_function_is() -> None:
    @zk_locked("<nothing>")
    def buy() -> None: ...

    line = buy.__wrapped__.__code__.co_firstlineno  # type: ignore[attr-defined]
    (message,) = messages()
    assert message.msg.startswith(f"{__file__}:{line}: ")
    assert "buy" in message.msg
    assert message.hint == "It has: none."


TYPO = """
from distlock import zk_locked

urlpatterns = []

@zk_locked("stock:<skew>")
def buy(sku): ...
"""


@pytest.fixture
def unloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module with a typo in a key, which nobody has imported."""
    name = "module_with_a_typo"
    (tmp_path / f"{name}.py").write_text(TYPO)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def celery_app() -> Iterator[Celery]:
    """An app as in another thread: not the current one there."""
    app = Celery("of_the_check", set_as_current=False)
    yield app
    app.close()


@pytest.mark.parametrize("tags", [None, ["distlock"]])
def test_e003_is_found_in_views_that_nobody_has_imported(
    tags: list[str] | None, unloaded: str, right: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django keeps its checks in a set; here those of this app come before that of the URLs."""
    ours_first = sorted(
        checks.registry.registry.registered_checks,
        key=lambda check: not check.__module__.startswith("distlock"),
    )
    monkeypatch.setattr(checks.registry.registry, "registered_checks", ours_first)
    right.ROOT_URLCONF = unloaded
    (message,) = messages(tags=tags)
    assert message.id == "distlock.E003"
    assert f"{unloaded}.py:6: " in message.msg


def test_e003_is_found_in_celery_tasks_that_nobody_has_imported(
    unloaded: str, celery_app: Celery
) -> None:
    celery_app.conf.include = [unloaded]
    for tags in (None, ["distlock"]):
        (message,) = messages(tags=tags)
        assert message.id == "distlock.E003"


@pytest.mark.parametrize("outside", [None, "yes"])
def test_e003_the_import_of_tasks_runs_no_checks_within_checks(
    outside: str | None, unloaded: str, celery_app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery's Django fixup runs all checks when it imports the tasks."""
    monkeypatch.delenv("CELERY_SKIP_CHECKS", raising=False)
    if outside:
        monkeypatch.setenv("CELERY_SKIP_CHECKS", outside)
    celery_app.conf.include = [unloaded]
    fixup = DjangoFixup(celery_app)
    signals.import_modules.connect(fixup.on_import_modules, sender=celery_app)
    assert found() == ["distlock.E003"]
    assert os.environ.get("CELERY_SKIP_CHECKS") == outside


def test_w005_a_module_of_tasks_cannot_be_imported(celery_app: Celery) -> None:
    celery_app.conf.include = ["no_such_module"]
    (message,) = messages()
    assert message.id == "distlock.W005"
    assert message.msg.endswith("ModuleNotFoundError: No module named 'no_such_module'")
    assert message.hint
