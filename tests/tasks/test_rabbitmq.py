"""Tasks that are put off over RabbitMQ, with classic and with quorum queues."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.celery_tools import PATIENCE, fleet
from tests.helpers import eventually
from tests.testproject.elsewhere import held_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_django import Settings

    from distlock.testing.server import ZooKeeper
    from tests.celery_tools import Fleet
    from tests.rabbitmq import RabbitMQ
    from tests.services import Redis

TASKS = "tests.testproject.locked_tasks"


@pytest.fixture(params=["classic", "quorum"])
def troupe(
    request: pytest.FixtureRequest,
    *,
    zookeeper: ZooKeeper,
    rabbitmq: RabbitMQ,
    redis: Redis,
    tmp_path: Path,
    settings: Settings,
) -> Iterator[Fleet]:
    if request.param == "quorum" and not find_spec("celery.utils.quorum_queues"):
        pytest.skip("Celery before 5.5 cannot consume from quorum queues.")
    queue = {
        "exchange": "celery",
        "exchange_type": "topic",
        "routing_key": "celery",
        "queue_arguments": {"x-queue-type": request.param},
    }
    celery: dict[str, Any] = {
        "task_queues": {"celery": queue},
        "task_default_exchange_type": "topic",
        "result_backend": redis.new_database(),
        "broker_transport_options": {"confirm_publish": True},
    }
    with fleet(zookeeper, tmp_path, rabbitmq.new_host(), celery=celery, RETRY_AFTER=0.1) as one:
        settings.DISTLOCK = one.distlock
        yield one


@pytest.mark.parametrize("policy", ["retry", "queue"])
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
