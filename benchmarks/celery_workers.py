"""A Celery worker for a benchmark, and waiting for what its tasks do."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import TimeoutExpired

from distlock_chaos.guard import GuardedProcess

ROOT = Path(__file__).resolve().parent.parent
#: When a condition that must come is given up, and a worker that must end is killed, in seconds.
PATIENCE = 60.0


@contextmanager
def worker(app: str, log: Path, *, processes: int) -> Iterator[GuardedProcess]:
    """A worker in the environment of this process.

    :param app: the module of the Celery app in `benchmarks.contenders`
    """
    command = f"-m celery -A benchmarks.contenders.{app} worker -P prefork -c {processes} -l INFO"
    process = GuardedProcess(
        [sys.executable, *command.split(), "-n", log.stem], output=log, cwd=ROOT
    )
    try:
        until(lambda: " ready." in log.read_text())
        yield process
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{log.read_text()[-3000:]}") from error
    finally:
        process.send(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait for a condition; raise `TimeoutError` after so many seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Something did not come within {patience:g} s.")
        time.sleep(0.01)
