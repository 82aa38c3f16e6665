"""What the worker's main process does for a queued-once task after the hard time limit."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from distlock import zk_lease, zk_locked
from distlock.celery.once_requests import OnceRequest
from distlock.celery.queued_once import QueuedOnce


@pytest.mark.usefixtures("distlock_settings")
@pytest.mark.parametrize(
    ("soft", "options", "free"),
    [
        (False, {"acks_late": False}, True),
        (False, {"acks_late": True}, True),
        (False, {"acks_late": True, "acks_on_failure_or_timeout": False}, False),
        (True, {"acks_late": False}, False),
    ],
    ids=["early", "late", "comes-again", "soft"],
)
def test_the_lease_ends_unless_the_message_comes_again(
    app: Celery, key: str, soft: bool, options: dict[str, Any], free: bool
) -> None:
    app.conf.task_default_queue = key

    @app.task(base=QueuedOnce, shared=False, **options)
    @zk_locked("<key>")
    def report(key: str) -> None: ...

    report.delay(key)
    with app.connection_for_read() as connection:
        message = app.amqp.queues[key](connection.default_channel).get()
        answers = {"on_ack": message.ack_log_error, "on_reject": message.reject_log_error}
        request = OnceRequest(message, app=app, task=report, **answers)
        request.on_accepted(1, 0.0)
        request.on_timeout(soft, 1)
    assert zk_lease(f"{report.name}:{key}", 60).locked() is not free
