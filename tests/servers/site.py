"""The test project behind a real web server, and its locks seen from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from subprocess import TimeoutExpired
from types import TracebackType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from distlock_chaos.guard import GuardedProcess
from distlock_chaos.server import ZooKeeper
from tests.kit.engines import tree_at
from tests.kit.helpers import ROOT, alive, eventually
from tests.testproject.database import ProjectDatabase

if TYPE_CHECKING:
    from typing_extensions import Self

STOP_SECONDS = 30


class Site:
    """One site: its database, its locks, and the server process that `run` starts."""

    def __init__(
        self, zookeeper: ZooKeeper, database: ProjectDatabase, namespace: str, folder: Path
    ) -> None:
        self.database = database
        self.folder = folder
        self._namespace = namespace
        self._hosts = zookeeper.hosts
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._tree = self._undo.enter_context(tree_at(self._hosts, self._namespace))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def environment(self, **distlock: Any) -> dict[str, str]:
        """What a server process needs to know, with more settings of `DISTLOCK`."""
        alias = {"HOSTS": self._hosts, "NAMESPACE": self._namespace, **distlock}
        said = self.database.environment({"default": alias, "careless": alias})
        return {**said, "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)])}

    def nodes(self, key: str) -> list[str]:
        """The contenders for a key."""
        return self._tree.children(self._tree.path(key))

    def pid_of_holder(self, key: str) -> int:
        """The process of the only one in line."""
        (node,) = self.nodes(key)
        data, _ = self._tree.client.get(f"{self._tree.path(key)}/{node}")
        return int(json.loads(data)["pid"])

    @contextmanager
    def run(
        self, *command: str, environment: dict[str, str], listening: str
    ) -> Iterator[WebServer]:
        """Start a server; `listening` is a pattern of what it prints, with its port."""
        with patch.dict(os.environ, environment):
            log = self.folder / "server.log"
            process = GuardedProcess([sys.executable, *command], output=log, cwd=ROOT)
        try:
            yield WebServer(process, log, listening)
        finally:
            process.send(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(STOP_SECONDS)

    @contextmanager
    def gunicorn(
        self, *arguments: str, application: str = "tests.testproject.wsgi", **distlock: Any
    ) -> Iterator[WebServer]:
        """Run gunicorn with four workers of four threads."""
        command = ["-m", "gunicorn", "--config=python:tests.testproject.gunicorn_conf"]
        with self.run(
            *command,
            *arguments,
            f"{application}:application",
            environment=self.environment(**distlock),
            listening=r"Listening at: http://127\.0\.0\.1:(\d+)",
        ) as server:
            yield server


class WebServer:
    """A running server."""

    def __init__(self, process: GuardedProcess, log: Path, listening: str) -> None:
        self.process = process
        self._log = log
        self._listening = listening
        self._port = eventually(self._find_port, timeout=60, message="The server listens")
        eventually(self.serves, timeout=60, message="The server serves")

    def _find_port(self) -> int:
        if not self.process.running:
            raise AssertionError(f"The server ended:\n{self.log}")
        found = re.search(self._listening, self.log)
        return int(found[1]) if found else 0

    def serves(self) -> bool:
        """Whether it answers requests."""
        with suppress(OSError, HTTPException):
            return self.request("GET", "/unlocked/")[0] == 404
        return False

    @property
    def log(self) -> str:
        return self._log.read_text()

    def post(self, path: str) -> tuple[int, dict[str, Any]]:
        """The status, and what the view said."""
        return self.request("POST", path)

    def request(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        return response.status, json.loads(body) if response.status == 200 else {}

    def stop(self) -> None:
        """End it in order and wait for that."""
        self.process.send(signal.SIGTERM)
        self.process.wait(STOP_SECONDS)


def end(pid: int, number: signal.Signals) -> None:
    """Send a signal to one process and wait until it is gone."""
    os.kill(pid, number)
    eventually(lambda: not alive(pid))
