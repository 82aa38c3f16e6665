"""The wheel in an environment of its own: every module, a lock, and what an extra is called."""

from __future__ import annotations

import json
from pathlib import Path

from distlock_chaos.server import ZooKeeper
from tests.packaging.environment import Environment

LOCK = """
import json, sys
from importlib.metadata import version
import django
from django.conf import settings
from django.core.management import call_command
from django.template.loader import render_to_string

settings.configure(
    INSTALLED_APPS=["distlock"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    DISTLOCK={"default": {"HOSTS": sys.argv[1], "NAMESPACE": sys.argv[2], "CONNECT_TIMEOUT": 15}},
)
django.setup()
call_command("check", fail_level="WARNING", stdout=sys.stderr)

import distlock
from distlock import zk_lock
from distlock.testing import assert_locked, hold

with zk_lock("stock:42", timeout=15) as mine:
    (holder,) = assert_locked("stock:42")
    token = holder.participant.token == mine.token
with hold("stock:42"):
    busy = not zk_lock("stock:42").acquire(timeout=0)
title = "Taken" in render_to_string("distlock/423.html", {"title": "Taken", "seconds": 1})
call_command("distlock", "doctor", "--budget", "15", stdout=sys.stderr)
print(json.dumps([distlock.__file__, version("django-distlock"), token, busy, title]))
"""

MODULES = """
import json, pkgutil, sys
from importlib import import_module
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=[
        "distlock", "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
    ],
)
django.setup()
import distlock

missed = {}
for module in pkgutil.walk_packages(distlock.__path__, "distlock."):
    try:
        import_module(module.name)
    except ImportError as error:
        missed[module.name] = [error.name, str(error)]
print(json.dumps(missed))
"""

CELERY = (
    "celery.once_requests",
    "celery.put_off",
    "celery.queued_once",
    "celery.receivers",
    "celery.runs",
    "celery.wakes",
    "tasks",
)


def test_an_empty_environment_locks_against_a_real_server(
    installed: Environment, zookeeper: ZooKeeper, namespace: str, tmp_path: Path
) -> None:
    output = installed.run("-c", LOCK, zookeeper.hosts, namespace, cwd=tmp_path)
    file, version, *works = json.loads(output.splitlines()[-1])
    assert file == str(installed.packages / "distlock/__init__.py")
    assert version == installed.distribution.version
    assert works == [True, True, True]
    assert "ok       session" in output


def test_every_module_can_be_imported_but_those_of_an_extra(
    installed: Environment, tmp_path: Path
) -> None:
    missed = json.loads(installed.run("-c", MODULES, cwd=tmp_path).splitlines()[-1])
    assert {name: top.partition(".")[0] for name, (top, _) in missed.items()} == {
        **{f"distlock.{name}": "celery" for name in CELERY},
        "distlock.celery.beat": "billiard",  # Celery's own
        "distlock.contrib.health_check": "health_check",
        "distlock.contrib.opentelemetry": "opentelemetry",
        "distlock.contrib.prometheus": "prometheus_client",
        "distlock.contrib.rest_framework": "rest_framework",
        "distlock.testing.fixtures": "pytest",
        "distlock.engine.postgresql.client": "psycopg",
        "distlock.engine.postgresql.engine": "psycopg",
        "distlock.engine.postgresql.errors": "psycopg",
        "distlock.engine.postgresql.server": "psycopg",
        "distlock.engine.redis.address": "redis",
        "distlock.engine.redis.client": "hiredis",
        "distlock.engine.redis.engine": "redis",
        "distlock.engine.redis.errors": "redis",
        "distlock.engine.redis.requests": "hiredis",
        "distlock.engine.redis.server": "redis",
    }
    for module, package in [
        ("health_check", "django-health-check"),
        ("rest_framework", "djangorestframework"),
    ]:
        assert f"pip install {package}" in missed[f"distlock.contrib.{module}"][1]
