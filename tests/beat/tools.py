"""Beats as subprocesses, and what they have sent."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import Any
from unittest.mock import patch

from redis import Redis as RedisClient

from distlock_chaos.guard import GuardedProcess
from tests.kit.celery_tools import STOP_SECONDS, Fleet
from tests.kit.helpers import ROOT, eventually

#: How long a test waits for what a beat must do, in seconds.
PATIENCE = 60.0
#: Tasks for the schedule; nobody runs them.
EVERY_MOMENT = {"often": {"task": "tests.testproject.tasks.play", "schedule": 0.2, "args": ["x"]}}


@contextmanager
def beat(fleet: Fleet, name: str) -> Iterator[GuardedProcess]:
    """Start a beat of this name, which has a schedule file of its own; it ends with the block."""
    project = {
        "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        "DISTLOCK": fleet.distlock,
    }
    said = {
        "DJANGO_SETTINGS_MODULE": "tests.testproject.settings",
        "TESTPROJECT": json.dumps(project),
        "CELERY_CONFIG": json.dumps(fleet._config),
        "STAGE": str(fleet.folder),
        "PYTHONPATH": str(ROOT),
    }
    command = (
        "-m celery -A tests.testproject.celery beat -S distlock.celery.beat:LeaderScheduler -l INFO"
    )
    files = [f"--schedule={fleet.folder / name}.schedule", "--pidfile="]
    log = fleet.folder / f"{name}.log"
    with patch.dict(os.environ, said):
        process = GuardedProcess([sys.executable, *command.split(), *files], output=log, cwd=ROOT)
    try:
        yield process
    except AssertionError as error:
        raise AssertionError(f"{error}\n{log.read_text()}") from error
    finally:
        with suppress(ProcessLookupError):
            process.send(signal.SIGCONT)
            process.send(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except TimeoutExpired:
            process.send(signal.SIGKILL)
            process.wait(STOP_SECONDS)


class Sent:
    """What is in the queue of a fleet: who has sent it, the first first."""

    def __init__(self, fleet: Fleet) -> None:
        self._client = RedisClient.from_url(fleet.broker)

    def by(self) -> list[int]:
        """The process ids of the senders."""
        messages: Any = self._client.lrange("celery", 0, -1)
        origins = [json.loads(message)["headers"]["origin"] for message in reversed(messages)]
        return [int(origin.removeprefix("gen").partition("@")[0]) for origin in origins]

    def await_more(
        self, sender: GuardedProcess, number: int = 3, patience: float = PATIENCE
    ) -> None:
        """Wait until a beat has sent so many more."""
        before = self.by().count(sender.pid)
        eventually(
            lambda: self.by().count(sender.pid) >= before + number, patience, "more sent by it"
        )

    def close(self) -> None:
        self._client.close()
