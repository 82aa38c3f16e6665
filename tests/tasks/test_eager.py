"""Tasks outside a worker: called as functions, or eagerly."""

# ruff: noqa: ARG001 - keys are for the locks

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, states
from pytest_django import Settings

from distlock import LockBusy, lock_contended, zk_lock, zk_locked
from distlock.celery import task_refused
from distlock.owner.owner import current
from tests.tasks.tools import Traced
from tests.testproject.elsewhere import held_elsewhere, in_line

pytestmark = pytest.mark.usefixtures("distlock_settings")


@pytest.fixture
def app(app: Celery) -> Celery:
    app.conf.task_always_eager = True
    return app


@pytest.fixture
def busy(distlock_settings: Settings) -> Iterator[None]:
    del distlock_settings  # only its order matters
    with held_elsewhere("feed:7", work="the test"):
        yield


def refreshes(app: Celery, on_busy: Any, **options: Any) -> Any:
    @app.task(shared=False)
    @zk_locked("feed:<feed_id>", on_busy=on_busy, timeout=0, **options)
    def refresh(feed_id: int) -> str:
        return f"feed {feed_id}"

    return refresh


@pytest.mark.parametrize(
    "on_busy", [None, "retry", "queue", "wait", "skip", "raise", lambda *_: None]
)
def test_a_free_lock_is_taken_whatever_the_policy(app: Celery, on_busy: Any) -> None:
    refresh = refreshes(app, on_busy)
    assert refresh(7) == refresh.delay(7).get() == "feed 7"
    assert in_line("feed:7") == 0


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("on_busy", [None, "retry", "queue"])
def test_retry_raises_in_eager_mode(app: Celery, on_busy: Any) -> None:
    assert type(refreshes(app, on_busy).delay(7).result) is LockBusy


@pytest.mark.usefixtures("busy")
def test_a_task_that_calls_itself_for_a_busy_key_raises_in_a_worker_too(app: Celery) -> None:
    """Putting off the inner call would run the outer one twice."""

    @app.task(shared=False)
    @zk_locked("feed:<feed_id>", on_busy="retry", timeout=0)
    def refresh(feed_id: int) -> Any:
        return refresh.run(7) if feed_id != 7 else None

    run = Traced(refresh, 8)
    assert (run.state, type(run.error)) == (states.FAILURE, LockBusy)


def test_a_lock_that_a_task_leaves_held_is_released_and_logged(
    app: Celery, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(shared=False)
    def forgets() -> None:
        zk_lock("feed:7").acquire()

    with zk_lock("kept"):
        forgets.delay()
        assert list(current().held) == [("default", "kept")]
    assert in_line("feed:7") == 0
    (said,) = (one for one in caplog.records if "left the lock" in one.message)
    assert said.levelno == logging.ERROR
    assert "forgets left the lock 'feed:7' held" in said.message


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("on_busy", "outcome"),
    [("skip", "skipped"), ("raise", "failed"), ("retry", "failed"), (lambda *_: 1, "answered")],
)
def test_a_refusal_is_signalled_with_its_outcome(app: Celery, on_busy: Any, outcome: str) -> None:
    told: list[dict[str, Any]] = []

    def hear(sender: type, **facts: Any) -> None:
        told.append(facts)

    task_refused.connect(hear)
    lock_contended.connect(hear)
    try:
        result = refreshes(app, on_busy).delay(7)
    finally:
        task_refused.disconnect(hear)
        lock_contended.disconnect(hear)
    contended, refused = told
    assert contended["key"] == refused["key"] == "feed:7"
    assert refused["outcome"] == outcome
    assert refused["task_id"] == result.id
    assert refused["holder"].label == "the test"


@pytest.mark.usefixtures("busy")
def test_log_records_have_fields(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "distlock.celery"):
        refresh = refreshes(app, "skip")
        refresh.delay(7).get()
        refresh.delay(8).get()
    skipped, granted = [one for one in caplog.records if one.name == "distlock.celery"]
    for record, outcome, key in ((skipped, "skipped", "feed:7"), (granted, "acquired", "feed:8")):
        assert vars(record).items() >= {
            ("key", key),
            ("using", "default"),
            ("template", "feed:<feed_id>"),
            ("outcome", outcome),
            ("put_off", 0),
        }
    assert {"token", "path", "waited"} <= vars(granted).keys()


def test_the_label_ends_with_the_task(app: Celery) -> None:
    @app.task(shared=False)
    def inner() -> str:
        with zk_lock("inner"):
            return label_of_holder("inner")

    @app.task(shared=False)
    def outer() -> tuple[str, str]:
        before = inner.delay().get(disable_sync_subtasks=False)
        with zk_lock("outer"):
            return before, label_of_holder("outer")

    inside, around = outer.delay().get()
    assert inside.startswith(f"{__name__}.inner[")
    assert around.startswith(f"{__name__}.outer[")
    with zk_lock("after"):
        assert label_of_holder("after") == ""


def label_of_holder(key: str) -> str:
    holder = zk_lock(key).holder()
    assert holder is not None
    return holder.label
