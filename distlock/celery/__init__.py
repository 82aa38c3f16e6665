"""Celery: tasks that hold locks, tasks that are queued once, and beat on many hosts.

Only `tickets` can be imported without Celery.
"""

from __future__ import annotations

from django.dispatch import Signal

#: A task did not get its lock: ``key``, ``task_id``, ``outcome`` ("retried", "skipped", "dropped",
#: "answered" by a callable or "failed"), ``holder``, ``waited`` (seconds since it first asked) and
#: ``put_off`` (the number of delays before). The sender is the task's class.
task_refused = Signal()
