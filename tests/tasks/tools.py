"""A task's messages, their runs as a worker does them, and the brokers of real workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import Any, Final

import pytest
from celery import signals, states
from celery.app.trace import build_tracer

from distlock import zk_lease
from distlock.celery.put_off import ONCE
from tests.kit.celery_tools import Fleet
from tests.kit.engines import tree_at
from tests.kit.rabbitmq import RabbitMQ
from tests.kit.services import Redis
from tests.kit.tools import Tree


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


class Message:
    """A message that was published, and its runs in this process."""

    def __init__(self, task: Any, *args: Any, **options: Any) -> None:
        self.task = task
        self.args = args
        #: Our header in each message, by the task's id: the last one that was published.
        self._said: dict[str, Any] = {}
        with self._noting():
            self.result = task.apply_async(args, **options)
        self.id = self.result.id

    @property
    def headers(self) -> dict[str, Any]:
        return {ONCE: self._said.get(self.id)}

    def run(self, *args: Any, **request: Any) -> Traced:
        """Run the last message that was published."""
        args = args or self.args
        request = {"headers": self.headers, **request}
        with self._noting():
            return Traced(self.task, *args, task_id=self.id, **request)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        def note(headers: dict[str, Any], **_: Any) -> None:
            self._said[headers["id"]] = headers.get(ONCE)

        signals.before_task_publish.connect(note, weak=False)
        try:
            yield
        finally:
            signals.before_task_publish.disconnect(note)


def tree_of(troupe: Fleet) -> AbstractContextManager[Tree]:
    """Return the block with the nodes of some workers' locks."""
    default = troupe.distlock["default"]
    return tree_at(default["HOSTS"], default["NAMESPACE"])


def free(task: Any, key: str) -> bool:
    """Whether no message of a task that is queued once has the lease of a lock's key."""
    return not zk_lease(f"{task.name}:{key}", 60).locked()


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
