"""A task's run as a worker does it, in this process, and the brokers of real workers."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from celery import states
from celery.app.trace import build_tracer

if TYPE_CHECKING:
    import pytest

    from tests.rabbitmq import RabbitMQ
    from tests.services import Redis


class Traced:
    """What a worker makes of one run of a task, in this process."""

    def __init__(
        self,
        task: Any,
        *args: Any,
        headers: Any = None,
        task_id: str = "the-id",
        **request: Any,
    ) -> None:
        request = {
            "id": task_id,
            "task": task.name,
            "args": args,
            "kwargs": {},
            "retries": 0,
            "headers": headers,
            "delivery_info": {"exchange": "", "routing_key": "celery"},
            **request,
        }
        tracer = build_tracer(task.name, task, app=task.app)
        traced = tracer(task_id, args, {}, request)
        self.state = traced.info.state if traced.info else states.SUCCESS
        self.error: Any = traced.info.retval if traced.info else None


#: RabbitMQ's kinds of queues. Celery before 5.5 cannot consume from quorum queues.
QUEUES: Final = ("classic", "quorum") if find_spec("celery.utils.quorum_queues") else ("classic",)
BROKERS: Final = ("redis", *QUEUES)


def broker_settings(request: pytest.FixtureRequest, redis: Redis) -> tuple[str, dict[str, Any]]:
    """Return a broker's URL and Celery's settings for it.

    :param request: its ``param`` is one of `BROKERS`
    :param redis: stores the results
    """
    if request.param == "redis":
        return redis.new_database(), {}
    queue = {
        "exchange": "celery",
        "exchange_type": "topic",
        "routing_key": "celery",
        "queue_arguments": {"x-queue-type": request.param},
    }
    rabbitmq: RabbitMQ = request.getfixturevalue("rabbitmq")
    return rabbitmq.new_host(), {
        "task_queues": {"celery": queue},
        "task_default_exchange_type": "topic",
        "result_backend": redis.new_database(),
        "broker_transport_options": {"confirm_publish": True},
    }
