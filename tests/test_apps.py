"""Importing and starting the app makes no thread and no connection, and may happen twice.

runserver calls ``ready()`` twice.
"""

from __future__ import annotations

import warnings

import pytest
from django.apps import apps
from django.core import checks
from django.http import HttpResponse

from distlock import signals, zk_locked
from distlock.middleware import DistlockMiddleware
from tests.kit.helpers import spawn_python

IMPORT_ALL = """
import socket, sys, threading

def refuse(*args, **kwargs):
    raise AssertionError("a connection")

socket.socket.connect = refuse
import distlock.decorators
assert "kazoo.client" in sys.modules  # so the silence below means something
import django
django.setup()
from django.apps import apps
apps.get_app_config("distlock").ready()
from django.core.management import call_command
call_command("check", tags=["distlock"], deploy=True)
from distlock.session.registry import sessions
from distlock import zk_lock
lock = zk_lock("stock:42")
assert not lock.held
assert not sessions()
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
print("silent")
"""


def test_import_ready_and_checks_make_no_thread_and_no_connection() -> None:
    with spawn_python(IMPORT_ALL) as process:
        out, err = process.communicate(timeout=30)
    assert out.splitlines()[-1] == "silent", err
    assert process.returncode == 0


def test_the_package_can_be_imported_before_settings_exist() -> None:
    code = "import distlock; distlock.zk_lock('a'); print('imported')"
    with spawn_python(code, environment={"DJANGO_SETTINGS_MODULE": ""}) as process:
        out, err = process.communicate(timeout=30)
    assert out == "imported\n", err


def test_ready_may_be_called_twice() -> None:
    def connected() -> list[object]:
        found = [*signals.lock_lost.receivers, *signals.lock_contended.receivers]
        return [uid for (uid, _), *_ in found if str(uid).startswith("distlock.logs")]

    before = connected()
    assert len(before) == 2
    registered = len(checks.registry.registry.registered_checks)
    apps.get_app_config("distlock").ready()
    assert connected() == before
    assert len(checks.registry.registry.registered_checks) == registered


@pytest.mark.parametrize("when", ["before", "after"])
def test_celery_is_noticed_when_it_is_imported_before_or_after_the_app(when: str) -> None:
    """A worker that a management command starts imports it after."""
    steps = ["import celery", "import django; django.setup()"]
    if when == "after":
        steps.reverse()
    code = f"""
import sys
{steps[0]}
{steps[1]}
from distlock import zk_locked
zk_locked("feed")(lambda: None)
print("distlock.celery.receivers" in sys.modules)
"""
    with spawn_python(code) as process:
        out, err = process.communicate(timeout=30)
    assert out == "True\n", err


def test_celery_is_not_imported_for_a_site_without_it() -> None:
    code = """
import sys
import django; django.setup()
from distlock import zk_locked
zk_locked("feed")(lambda: None)
print("celery" in sys.modules)
"""
    with spawn_python(code) as process:
        out, err = process.communicate(timeout=30)
    assert out == "False\n", err


def test_a_site_without_the_app_is_told_so_at_its_own_line() -> None:
    apps.set_installed_apps(["django.contrib.contenttypes"])
    try:
        with pytest.warns(RuntimeWarning, match="zk_locked is used, but .* INSTALLED_APPS") as said:
            zk_locked("report")
        with pytest.warns(RuntimeWarning, match="DistlockMiddleware is used"):
            DistlockMiddleware(lambda _: HttpResponse())
    finally:
        apps.unset_installed_apps()
    assert [warning.filename for warning in said] == [__file__]


def test_code_that_sets_up_no_apps_is_not_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "ready", False)
    monkeypatch.setattr(apps, "app_configs", {})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        zk_locked("report")
    assert said == []


@pytest.mark.parametrize("hosts", ["127.0.0.1:1", "redis://127.0.0.1:1"])
def test_the_first_lock_imports_nothing(hosts: str) -> None:
    """Another thread may fork meanwhile, and the child would wait for the import for ever."""
    code = f"""
import sys
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["distlock"],
    DISTLOCK={{"default": {{"HOSTS": {hosts!r}, "CONNECT_TIMEOUT": 0.2}}}},
)
import django; django.setup()
from distlock import LockUnavailable, zk_lock
before = set(sys.modules)
try:
    zk_lock("stock:42", timeout=0).acquire()
except LockUnavailable:
    print(sorted(set(sys.modules) - before))
"""
    with spawn_python(code) as process:
        out, err = process.communicate(timeout=30)
    assert out == "[]\n", err
