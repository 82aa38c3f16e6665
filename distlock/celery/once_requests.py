"""Handles a queued-once message in the worker's main process, which outlives the task's."""

from __future__ import annotations

from typing import Any

from celery.worker.request import Request

from .queued_once import release_lost


class OnceRequest(Request):  # type: ignore[misc]  # Celery has no types
    """Lets the next task be queued when the pool has killed a process, or lost it."""

    _comes_again = False

    def reject(self, requeue: bool = False) -> None:
        """Note whether the message goes back to its queue."""
        self._comes_again = requeue and not self.acknowledged
        super().reject(requeue=requeue)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Release the lease after the hard time limit: Celery before 5.7 sends no signal."""
        super().on_timeout(soft, timeout)
        if not soft and self.acknowledged and not self._comes_again:
            release_lost(self.task, self._context)

    def on_failure(self, *args: Any, **options: Any) -> Any:
        """Let receivers of ``task_failure`` see the request, as Celery does since 5.7."""
        self.task.request_stack.push(self._context)
        try:
            return super().on_failure(*args, **options)
        finally:
            self.task.request_stack.pop()
