"""`celery -A proj distlock once`: the tasks that are queued once, and freeing the key of one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from django.core.management import CommandError, call_command

from distlock import zk_lease
from tests.kit.celery_tools import PATIENCE, Fleet, fleet
from tests.kit.helpers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from distlock.testing.server import ZooKeeper
    from tests.kit.services import Redis

TASK = "tests.testproject.locked_tasks.once"
CELERY = Path(sysconfig.get_path("scripts")) / "celery"


@pytest.fixture
def project(
    zookeeper: ZooKeeper, redis: Redis, tmp_path: Path, settings: Settings
) -> Iterator[Fleet]:
    """A project whose tasks this test publishes, and which has no worker."""
    with fleet(zookeeper, tmp_path, redis.new_database()) as one:
        settings.DISTLOCK = one.distlock
        yield one


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The package as installed from these sources, for its entry points."""
    found = re.search(
        r'\[project\.entry-points\."celery\.commands"\]\n(.+)\n',
        (ROOT / "pyproject.toml").read_text(),
    )
    assert found
    about = tmp_path / "site" / "django_distlock-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: django-distlock\nVersion: 0\n")
    entry = found[1].replace('"', "")
    (about / "entry_points.txt").write_text(f"[celery.commands]\n{entry}\n")
    return about.parent


def celery(
    installed: Path, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run the `celery` executable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO")}
    path = os.pathsep.join([str(installed), str(ROOT)])
    return subprocess.run(
        [CELERY, *arguments],
        env={**kept, **environment, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_celery_command_lists_and_frees(project: Fleet, installed: Path) -> None:
    def once(*arguments: str) -> subprocess.CompletedProcess[str]:
        app = ["-A", "tests.testproject.celery"]
        return celery(installed, project.environment(), *app, "distlock", "once", *arguments)

    nothing = once()
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "No task is queued once" in nothing.stderr
    task = project.task("once", "tests.testproject.locked_tasks")
    first, second = (task.delay(key, "actor") for key in ("one", "two"))
    zk_lease("another", 60, owner="me").acquire()
    listed = once()
    assert (listed.returncode, listed.stderr) == (0, "")
    rows = [line.split() for line in listed.stdout.splitlines()]
    assert rows[0] == ["TASK", "ID", "UNTIL", "KEY"]
    assert [(row[0], row[1], row[-1]) for row in rows[1:]] == [
        (TASK, first.id, f"{TASK}:one"),
        (TASK, second.id, f"{TASK}:two"),
    ]
    told = json.loads(once("--json").stdout)["leases"]
    assert [(one["task"], one["id"], one["key"]) for one in told] == [
        (TASK, first.id, f"{TASK}:one"),
        (TASK, second.id, f"{TASK}:two"),
    ]
    assert told[0]["until"].endswith("+00:00")
    freed = once("--free", f"{TASK}:one", "--reason", "lost with its broker")
    assert (freed.returncode, freed.stdout) == (0, f"Freed: {TASK}:one\n")
    assert task.delay("one", "actor").id != first.id
    assert task.delay("two", "actor").id == second.id


def test_the_celery_command_passes_other_subcommands_on(project: Fleet, installed: Path) -> None:
    app = ["-A", "tests.testproject.celery"]
    helped = celery(installed, project.environment(), *app, "distlock", "list", "--help")
    assert helped.returncode == 0
    assert helped.stdout.startswith("usage: celery distlock list")


def test_without_settings_the_celery_command_says_what_is_missing(
    project: Fleet, installed: Path
) -> None:
    environment = project.environment()
    del environment["DJANGO_SETTINGS_MODULE"]
    refused = celery(installed, environment, "-A", "celery", "distlock", "once")
    assert refused.returncode == 2
    assert "Set DJANGO_SETTINGS_MODULE" in refused.stderr


def test_an_app_without_such_tasks_is_refused(project: Fleet, installed: Path) -> None:
    refused = celery(installed, project.environment(), "-A", "celery", "distlock", "once")
    assert refused.returncode == 2
    assert "no task with the base QueuedOnce" in refused.stderr


def run(*arguments: str) -> None:
    call_command("distlock", "once", "--budget", str(PATIENCE), *arguments)


@pytest.fixture
def task(project: Fleet) -> Iterator[Any]:
    """A task of the current app, which the management command asks for its tasks."""
    project.app.set_current()
    yield project.task("once", "tests.testproject.locked_tasks")
    Celery(set_as_current=True).close()


def test_freeing_is_on_record(
    task: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    first = task.delay("one", "actor")
    run("--free", f"{TASK}:one", "--reason", "because", "--json")
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["id"], told["freed"]) == (first.id, True)
    before, after = (one.getMessage() for one in caplog.records if one.name == "distlock.audit")
    assert f"is about to break the lock of {first.id}" in before
    assert before.endswith("Reason: because")
    assert after.endswith("done.")


@pytest.mark.usefixtures("task")
@pytest.mark.parametrize("key", ["nobody", f"{TASK}:nobody"])
def test_a_key_that_no_task_has_is_told(key: str) -> None:
    with pytest.raises(CommandError, match="lists the keys") as refused:
        run("--free", key)
    assert refused.value.returncode == 1


@pytest.mark.usefixtures("task")
def test_a_lease_of_no_task_is_left_alone() -> None:
    lease = zk_lease("another", 60, owner="me")
    lease.acquire()
    with pytest.raises(CommandError):
        run("--free", "another")
    assert lease.locked()


@pytest.mark.parametrize("option", [("--reason", "because"), ("--user", "ann")])
def test_a_record_of_nothing_is_refused(option: tuple[str, str]) -> None:
    with pytest.raises(CommandError, match="go with --free") as refused:
        run(*option)
    assert refused.value.returncode == 2
