"""Commands, workers and children of a program share the embedded server with it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_django import Settings

from distlock import zk_lock
from tests.kit.celery_tools import PATIENCE, fleet
from tests.kit.embedded import kill
from tests.kit.helpers import eventually, spawn_python
from tests.kit.services import Redis

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("folder")]

COMMAND = """
import sys
from django.conf import settings
from django.core.management import execute_from_command_line
settings.configure(
    DEBUG=True, INSTALLED_APPS=["distlock"], DISTLOCK={"default": {"HOSTS": "embedded"}}
)
execute_from_command_line(["manage.py", "distlock", *sys.argv[1:]])
"""


def distlock(*arguments: str) -> tuple[int, str]:
    """Run a subcommand as a process; return its status and all that it has written."""
    with spawn_python(COMMAND, *arguments) as process:
        output, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, output + errors


@pytest.mark.usefixtures("embedded_hosts")
def test_commands_see_and_respect_the_lock_of_another_process() -> None:
    with zk_lock("key"):
        status, said = distlock("list", "-o", "json")
        assert (status, [lock["key"] for lock in json.loads(said)["locks"]]) == (0, ["key"])
        assert distlock("run", "--lock", "key", "--timeout", "0", "--", "true")[0] != 0
    assert distlock("run", "--lock", "key", "--", "true") == (0, "")


def test_the_session_reaper_finds_it(redis: Redis, tmp_path: Path, settings: Settings) -> None:
    embedded: Any = SimpleNamespace(hosts="embedded")
    options = {"SESSION_TIMEOUT": 40}
    with (
        fleet(embedded, tmp_path, redis.new_database(), **options) as troupe,
        troupe.worker(concurrency=1),
    ):
        settings.DISTLOCK = troupe.distlock
        lock = zk_lock("key", timeout=20)
        troupe.task("work", "tests.testproject.locked_tasks").delay("key", "actor", 3600)
        kill(eventually(lambda: getattr(lock.holder(), "pid", 0), PATIENCE))
        with lock:
            pass
