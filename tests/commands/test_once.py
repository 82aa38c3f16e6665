"""A task that is queued once is a lease: `list` shows it, and `break` frees its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from distlock import zk_lease
from distlock_chaos.server import ZooKeeper
from tests.commands.tools import run
from tests.kit.celery_tools import Fleet, fleet
from tests.kit.services import Redis

TASK = "tests.testproject.locked_tasks.once"


@pytest.fixture
def project(
    zookeeper: ZooKeeper, redis: Redis, tmp_path: Path, settings: Settings
) -> Iterator[Fleet]:
    """A project whose tasks this test publishes, and which has no worker."""
    with fleet(zookeeper, tmp_path, redis.new_database()) as one:
        settings.DISTLOCK = one.distlock
        yield one


def test_the_key_of_a_lost_task_is_found_and_freed(project: Fleet) -> None:
    task = project.task("once", "tests.testproject.locked_tasks")
    first, second = (task.delay(key, "actor") for key in ("one", "two"))
    zk_lease("another", 60, owner="me").acquire()
    status, out, errors = run("list", f"{TASK}:")
    assert (status, errors) == (0, "")
    (_, *rows) = [line.split() for line in out.splitlines()]
    assert [(row[0], row[1]) for row in rows] == [
        (f"{TASK}:{key}", "lease") for key in ("one", "two")
    ]
    for row, result in zip(rows, (first, second), strict=True):
        assert result.id in row
        assert "until" in row
    status, out, _ = run("break", f"{TASK}:one", "-y", "--reason", "lost with its broker")
    assert status == 0
    assert first.id in out
    assert task.delay("one", "actor").id != first.id
    assert task.delay("two", "actor").id == second.id
