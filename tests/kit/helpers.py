"""Small tools that many tests need."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from kazoo.client import KazooClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pytest

ROOT = Path(__file__).resolve().parents[2]

T = TypeVar("T")

#: How long a call waits for an answer where just that is not the subject, in seconds.
ANSWER_SECONDS = 10.0


class Urls(ModuleType):
    """The URLconf of one test."""

    def __init__(self, *patterns: Any) -> None:
        super().__init__("urls_of_a_test")
        self.urlpatterns = list(patterns)


def eventually(
    condition: Callable[[], T], timeout: float = 20, message: str | Callable[[], str] = ""
) -> T:
    """Call `condition` until it returns something true, and return that; fail after `timeout` s.

    :param message: what was awaited; a callable is only called for a failure
    """
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        if time.monotonic() > deadline:
            text = message() if callable(message) else message
            raise AssertionError(f"{text or condition} was not true within {timeout:g} s.")
        time.sleep(0.01)
    return result


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What distlock has logged itself. kazoo also tells of a connection that is slow to come."""
    return [record.getMessage() for record in caplog.records if record.name == "distlock"]


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """For work that keeps most of what it makes: looking through it again and again takes long."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for yet does not."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.strip()[:1] not in {"", "Z"}


@contextmanager
def spawn_python(
    code: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run `code` in a Python process of its own, in which `distlock` and `tests` can be imported.

    Yields the process, with text pipes for stdin, stdout and stderr; it is killed at the end
    if it still runs. Read a line of stdout to wait for it.
    """
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PYTHONPATH": str(ROOT),
            **(environment or {}),
        },
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def raw_client(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """A started kazoo client of its own, for looking at the tree from outside."""
    client = KazooClient(hosts, **options)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()
