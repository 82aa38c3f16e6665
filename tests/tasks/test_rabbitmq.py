"""Tasks that are put off over RabbitMQ, with classic and with quorum queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from distlock_chaos.server import ZooKeeper
from tests.kit.celery_tools import PATIENCE, Fleet, fleet
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.tasks.tools import QUEUES, broker_settings
from tests.testproject.elsewhere import held_elsewhere

pytestmark = pytest.mark.deep

TASKS = "tests.testproject.locked_tasks"


@pytest.fixture(params=QUEUES)
def troupe(
    request: pytest.FixtureRequest,
    *,
    zookeeper: ZooKeeper,
    redis: Redis,
    tmp_path: Path,
    settings: Settings,
) -> Iterator[Fleet]:
    broker, celery = broker_settings(request, redis)
    with fleet(zookeeper, tmp_path, broker, celery=celery, RETRY_AFTER=0.1) as one:
        settings.DISTLOCK = one.distlock
        yield one


@pytest.mark.parametrize(
    ("troupe", "policy"),
    # Of a classic queue, a worker's main process keeps those that wait in a line.
    [
        (kind, policy)
        for kind in QUEUES
        for policy in ("retry", "queue")
        if (kind, policy) != ("classic", "queue")
    ],
    indirect=["troupe"],
)
def test_tasks_that_were_put_off_several_times_end(troupe: Fleet, policy: str, key: str) -> None:
    """Quorum queues delay by whole seconds, and drop a message that passes a delay queue twice."""
    task = troupe.task(policy, TASKS)
    with troupe.worker(concurrency=2) as worker:
        with held_elsewhere(key):
            results = [task.delay(key, f"{key}-{number}") for number in range(3)]
            for result in results:

                def put_off_again(task_id: str = result.id) -> bool:
                    lines = (line for line in worker.log.splitlines() if task_id in line)
                    return sum("Put off" in line for line in lines) >= 3

                eventually(put_off_again, PATIENCE, "a task put off three times")
        assert [bool(result.get(timeout=PATIENCE)) for result in results] == [True] * 3
