"""Defines the end of a message in whose place a newer one of its task was queued."""

from __future__ import annotations

from celery.exceptions import TaskRevokedError


class Replaced(TaskRevokedError):  # type: ignore[misc]  # Celery has no types
    """The result of a task that never ran, since a newer message has replaced it.

    :ivar task_id: the id of the newer message
    """

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id

    def __str__(self) -> str:
        return f"replaced by the task {self.task_id}"
