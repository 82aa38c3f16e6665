"""Celery: tasks that hold locks, tasks that are queued once, and beat on many hosts.

`receivers` connects to Celery's signals; `apps` imports it where Celery is used. It gives the
decorator its `runs`: one run of a task under its lock, with its policy for a busy lock. `put_off`
publishes a delayed task again. One of the `tickets` keeps its place in the wait queue meanwhile,
and `wakes` let the first task begin when the lock is free. `queued_once` is a base class for tasks
of which one message is queued at a time. `beat` lets one scheduler of many send.

Only `tickets` can be imported without Celery.
"""

from __future__ import annotations

from django.dispatch import Signal

#: A task did not get its lock: ``key``, ``task_id``, ``outcome`` ("retried", "skipped", "dropped",
#: "answered" by a callable or "failed"), ``holder``, ``waited`` (seconds since it first asked) and
#: ``put_off`` (the number of delays before). The sender is the task's class.
task_refused = Signal()
