"""Real Celery workers as subprocesses, their broker, and the test's own end of both."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from uuid import uuid4

from celery import Celery
from kombu import pools

from distlock_chaos.guard import GuardedProcess
from tests.testproject.tasks import Stage

from .helpers import ROOT, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from distlock.testing.embedded import EmbeddedProcess
    from distlock_chaos.server import ZooKeeper

#: How long a test waits for what a worker must do, in seconds.
PATIENCE = 60.0
#: How long a worker may take to finish its tasks and end, in seconds.
STOP_SECONDS = 15.0


class Fleet:
    """Workers that share a broker, a lock namespace and a `Stage`, and the test's Celery app.

    :param broker: its URL, which serves for the results too
    :param celery: more Celery settings
    :param distlock: more options of ``DISTLOCK``
    """

    def __init__(
        self,
        zookeeper: ZooKeeper | EmbeddedProcess,
        folder: Path,
        broker: str,
        *,
        celery: dict[str, Any] | None = None,
        **distlock: Any,
    ) -> None:
        self.folder = folder
        self.broker = broker
        self.stage = Stage(folder)
        alias = {"HOSTS": zookeeper.hosts, "NAMESPACE": f"/t-{uuid4()}", **distlock}
        #: A value for ``settings.DISTLOCK``: the workers' own.
        self.distlock: dict[str, Any] = {"default": alias}
        self._config = {
            "broker_url": broker,
            "result_backend": broker,
            "broker_connection_retry_on_startup": True,
            "worker_prefetch_multiplier": 1,
            "task_send_sent_event": False,
            **(celery or {}),
        }
        #: The test's own app, which knows the workers' tasks and is nobody else's current app.
        self.app = Celery(
            "testproject",
            config_source=self._config,
            include=["tests.testproject.tasks", "tests.testproject.locked_tasks"],
            set_as_current=False,
        )
        self.app.loader.import_default_modules()

    def task(self, name: str, module: str = "tests.testproject.tasks") -> Any:
        """A task, to be sent with its `delay` or `apply_async`."""
        return self.app.tasks[f"{module}.{name}"]

    def environment(self, **distlock: Any) -> dict[str, str]:
        """Return what a process of the fleet needs in its environment."""
        project = {
            "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            "DISTLOCK": {"default": {**self.distlock["default"], **distlock}},
        }
        return {
            "DJANGO_SETTINGS_MODULE": "tests.testproject.settings",
            "TESTPROJECT": json.dumps(project),
            "CELERY_CONFIG": json.dumps(self._config),
            "STAGE": str(self.folder),
            "PYTHONPATH": str(ROOT),
        }

    @contextmanager
    def worker(
        self,
        *options: str,
        pool: str = "prefork",
        concurrency: int = 4,
        environment: dict[str, str] | None = None,
        celery: dict[str, Any] | None = None,
        **distlock: Any,
    ) -> Iterator[Worker]:
        """Start a worker and wait until it serves.

        :param options: more options of ``celery worker``
        :param celery: more settings of its Celery
        :param distlock: more options of its ``DISTLOCK``
        """
        name = f"w{uuid4().hex[:8]}"
        log = self.folder / f"{name}.log"
        said = {**self.environment(**distlock), **(environment or {})}
        if celery:
            said["CELERY_CONFIG"] = json.dumps({**self._config, **celery})
        command = f"-m celery -A tests.testproject.celery worker -P {pool} -c {concurrency} -l INFO"
        quiet = "--without-gossip --without-mingle --without-heartbeat"
        with patch.dict(os.environ, said):
            process = GuardedProcess(
                [sys.executable, *command.split(), *quiet.split(), "-n", name, *options],
                output=log,
                cwd=ROOT,
            )
        worker = Worker(process, name, log)
        try:
            eventually(worker.serves, PATIENCE, "A worker that serves")
            yield worker
        finally:
            worker.end()

    def close(self) -> None:
        """Give back the app's connections."""
        disconnect(self.app)
        self.app.close()


def disconnect(app: Celery) -> None:
    """Close an app's connections; the next use connects again."""
    backend = app.backend
    if hasattr(backend, "result_consumer"):  # Redis
        backend.client.connection_pool.disconnect()  # close() would leave some
        # Results that are collected later would connect again to unsubscribe.
        backend.result_consumer._pubsub = None
    pools.reset()  # type: ignore[no-untyped-call]
    app._after_fork()  # forgets the pools


class Worker:
    """A running ``celery worker``."""

    def __init__(self, process: GuardedProcess, name: str, log: Path) -> None:
        self.process = process
        self.name = name
        self._log = log

    @property
    def log(self) -> str:
        """What it has logged so far, and its children."""
        return self._log.read_text()

    def serves(self) -> bool:
        """Whether it takes tasks."""
        if not self.process.running:
            raise AssertionError(f"The worker ended:\n{self.log}")
        return f"{self.name} ready." in self.log.replace(f"@{os.uname().nodename}", "")

    def stop(self, number: signal.Signals = signal.SIGTERM, patience: float = PATIENCE) -> None:
        """End it in order (SIGTERM: warm shutdown, SIGQUIT: cold) and wait for that."""
        self.process.send(number)
        self.process.wait(patience)

    def end(self) -> None:
        """End it with all its children, in order if it can."""
        try:
            if self.process.running:
                self.stop(patience=STOP_SECONDS)
        except TimeoutExpired:
            pass
        finally:
            with suppress(ProcessLookupError):  # children outlive a killed worker
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(STOP_SECONDS)


@contextmanager
def fleet(
    zookeeper: ZooKeeper | EmbeddedProcess, folder: Path, broker: str, **options: Any
) -> Iterator[Fleet]:
    """A `Fleet` that is taken apart at the end."""
    one = Fleet(zookeeper, folder, broker, **options)
    try:
        yield one
    finally:
        one.close()
