"""A process that serves one request after the other: a path a line in, an answer a line out."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import django
from django.test import Client

from tests.kit.helpers import spawn_python

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator


class Driver:
    """The far end of such a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._unread = 0
        assert self._read() == "ready"

    def post(self, path: str) -> None:
        """Start a request; `answer` waits for its end."""
        assert self._process.stdin is not None
        while self._unread:  # left by a test that has failed
            self.answer()
        self._unread += 1
        print(path, file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """The status, and what the view said."""
        said: dict[str, Any] = json.loads(self._read())
        self._unread -= 1
        return said

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError(f"The driver ended:\n{self._process.stderr.read()}")
        return line


@contextmanager
def drive(environment: dict[str, str]) -> Iterator[Driver]:
    code = "from tests.testproject.driver import main; main()"
    with spawn_python(code, environment=environment) as process:
        yield Driver(process)


def main() -> None:
    django.setup()
    # Django's own handler, with its ATOMIC_REQUESTS, and without a network in between.
    client = Client(raise_request_exception=False)
    print("ready")  # noqa: T201
    for line in sys.stdin:
        response = client.post(line.strip())
        is_json = response.headers["Content-Type"] == "application/json"
        said = response.json() if is_json else {}
        print(json.dumps({"status": response.status_code, **said}))  # noqa: T201
