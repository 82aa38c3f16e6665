"""A queued-once task that ends in every way."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from celery import shared_task
from celery.exceptions import Ignore, Reject

from distlock import zk_locked
from distlock.celery.queued_once import QueuedOnce
from tests.testproject.tasks import play, stage

if TYPE_CHECKING:
    from collections.abc import Callable

task: Callable[..., Callable[[Callable[..., Any]], Any]] = shared_task


@task(base=QueuedOnce, bind=True, once_ttl=120)
@zk_locked("<key>")
def ends(self: Any, key: str, how: str = "") -> str:
    """Play, or end as `how` says."""
    if how == "ignore":
        raise Ignore("no")
    if how == "reject":
        raise Reject("no", requeue=False)
    if how == "replace":
        raise self.replace(play.si(f"{key}-replaced"))
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stage().play(key)
    return key
