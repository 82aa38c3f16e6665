"""A task's run as a worker does it, in this process."""

from __future__ import annotations

from typing import Any

from celery import states
from celery.app.trace import build_tracer


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
