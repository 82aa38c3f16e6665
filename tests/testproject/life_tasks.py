"""Celery tasks for the life cycle of workers."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from celery import shared_task

from distlock import zk_lock, zk_locked
from distlock.locks import lock
from distlock.session.guaranteed_delete import GuaranteedDelete
from tests.testproject.tasks import PLAY_SECONDS, stage

if TYPE_CHECKING:
    from collections.abc import Callable

task: Callable[..., Callable[[Callable[..., Any]], Any]] = shared_task


def _work() -> None:
    """What is done under the lock."""


STEPS: dict[str, tuple[Any, str]] = {
    "grant": (lock, "Hold"),
    "body": (sys.modules[__name__], "_work"),
    "release": (GuaranteedDelete, "delete"),
}


@task()
def soft_limit(key: str, actor: str, where: str) -> None:
    """Meet the soft time limit at this step. Celery's is just this signal."""
    owner, name = STEPS[where]
    real, met = getattr(owner, name), False

    def step(*args: Any, **options: Any) -> Any:
        nonlocal met
        if not met:
            met = True
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(PLAY_SECONDS)  # ended by the exception
        return real(*args, **options)

    with patch.object(owner, name, step), zk_lock(key, timeout=PLAY_SECONDS):
        stage().tell(actor, "enter")
        _work()


@task()
@zk_locked("<key>", on_busy="wait", timeout=PLAY_SECONDS)
def count(key: str, pause: float) -> int:
    """Read a number, pause, and write the next one: two at a time would lose one."""
    file = Path(os.environ["STAGE"], f"{key}.count")
    number = int(file.read_text()) if file.exists() else 0
    time.sleep(pause)
    file.write_text(str(number + 1))
    return os.getpid()
