"""Importing and starting the app makes no thread and no connection, and may happen twice.

PITFALLS 37: runserver calls ``ready()`` twice.
"""

from __future__ import annotations

import pytest
from django.apps import apps
from django.core import checks

from distlock import signals
from tests.helpers import spawn_python

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
from distlock import session, zk_lock
lock = zk_lock("stock:42")
assert not lock.held
assert not session._sessions
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
    receivers = len(signals.lock_lost.receivers), len(signals.lock_contended.receivers)
    assert all(receivers)
    registered = len(checks.registry.registry.registered_checks)
    apps.get_app_config("distlock").ready()
    assert (len(signals.lock_lost.receivers), len(signals.lock_contended.receivers)) == receivers
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
print("distlock.celery" in sys.modules)
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
