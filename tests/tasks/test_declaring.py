"""``@zk_locked`` below a task's decorator: what is refused, and that Celery's own checks go on.

``functools.wraps`` alone would switch Celery's argument check off.
"""

# ruff: noqa: ARG001 - keys are for the locks

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, Task

from distlock import zk_limited, zk_locked


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"full": True, "more": 1})]
)
def test_wrong_arguments_are_refused_before_anything_is_sent(
    app: Celery, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    @app.task(shared=False)
    @zk_locked("feed:<feed_id>")
    def refresh(feed_id: int, full: bool = False) -> None: ...

    with pytest.raises(TypeError, match=r"refresh\(\)|feed_id"):
        refresh.apply_async(args, kwargs)


def test_a_bound_task_has_self_and_celery_does_not_ask_for_it(app: Celery) -> None:
    @app.task(bind=True, shared=False)
    @zk_locked("feed:<feed_id>:<self.name>")
    def refresh(self: Any, feed_id: int) -> None: ...

    with pytest.raises(TypeError):
        refresh.delay()
    refresh.delay(1)


def test_above_the_tasks_decorator_it_is_refused(app: Celery) -> None:
    @app.task(shared=False)
    def refresh() -> None: ...

    with pytest.raises(TypeError, match="below @shared_task"):
        zk_locked("feed")(refresh)


def test_on_a_task_class_it_is_refused(app: Celery) -> None:
    with pytest.raises(TypeError, match="decorates a function"):

        @zk_locked("feed")
        class Refresh(Task):  # type: ignore[misc]  # Celery has no types
            pass


@pytest.mark.parametrize("limit", [0, -1, 1.5, "3", True])
def test_an_impossible_limit_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="busy_limit must be a number of tries above 0"):
        zk_locked("feed", busy_limit=limit)


@pytest.mark.parametrize("deadline", [-1, float("nan"), "an hour"])
def test_an_impossible_deadline_is_refused(deadline: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="busy_deadline"):
        zk_locked("feed", busy_deadline=deadline)


@pytest.mark.parametrize("pause", [0, -1, "a minute"])
def test_an_impossible_pause_is_refused(pause: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="busy_pause"):
        zk_limited("feed", 3, busy_pause=pause)


@pytest.mark.parametrize("on_busy", ["queue", "skip", print])
def test_a_pause_of_another_policy_is_refused(on_busy: Any) -> None:
    with pytest.raises(ValueError, match='belongs to on_busy="retry"'):
        zk_locked("feed", on_busy=on_busy, busy_pause=60)


@pytest.mark.parametrize("options", [{"busy_limit": 3}, {"busy_deadline": None}])
@pytest.mark.parametrize("on_busy", ["skip", "wait", "raise", print])
def test_limits_of_another_policy_are_refused(on_busy: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='belong to on_busy="retry"'):
        zk_locked("feed", on_busy=on_busy, **options)
