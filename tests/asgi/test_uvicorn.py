"""Locks of async and sync views behind uvicorn, whose clients may go away at any moment."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from distlock_chaos.guard import GuardedProcess
from distlock_chaos.server import ZooKeeper
from tests.kit.engines import tree_at
from tests.kit.helpers import ROOT, eventually
from tests.kit.tools import PATIENCE, Tree

pytestmark = [pytest.mark.deep, pytest.mark.engines("zookeeper", "redis", postgresql=False)]

KEY = "key"
SYNC = ["holds_sync", "forgets_sync"]
ASYNC = ["holds", "locked"]


class Server:
    """A site of one uvicorn process, and its clients."""

    def __init__(self, process: GuardedProcess, folder: Path) -> None:
        self.process = process
        self._folder = folder
        self._clients = ThreadPoolExecutor(4)
        self._port = eventually(self._find_port, 60, "uvicorn listens")

    def _find_port(self) -> int:
        if not self.process.running:
            raise AssertionError(f"uvicorn ended:\n{self.log}")
        found = re.search(r"Uvicorn running on http://127\.0\.0\.1:(\d+)", self.log)
        return int(found[1]) if found else 0

    @property
    def log(self) -> str:
        return (self._folder / "server.log").read_text()

    def let_go(self, key: str) -> None:
        """Let the views of a key go on."""
        (self._folder / f"{key}.go").touch()

    def await_note(self, key: str, said: str) -> None:
        """Wait until the site has said this of a key."""
        eventually((self._folder / f"{key}.{said}").exists, PATIENCE, f"{key} is {said}")

    @contextmanager
    def asked(self, path: str) -> Iterator[HTTPConnection]:
        """Ask for a page, and hang up at the end, with or without an answer."""
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            connection.request("GET", path)
            yield connection

    def get(self, path: str) -> tuple[int, Message, Any]:
        """The status, the headers, and what the view said."""
        with self.asked(path) as connection:
            response = connection.getresponse()
            body = response.read()
            said = json.loads(body) if response.status == 200 else body.decode()
            return response.status, response.headers, said

    def getting(self, path: str) -> Any:
        """Do so meanwhile: a future."""
        return self._clients.submit(self.get, path)

    def stop(self) -> None:
        self.process.send(signal.SIGTERM)
        self.process.wait(PATIENCE)
        self._clients.shutdown()


@contextmanager
def serving(folder: Path, **distlock: Any) -> Iterator[Server]:
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.asgi.settings",
        "ASGI_DISTLOCK": json.dumps({"default": distlock}),
        "ASGI_FOLDER": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    command = ["-m", "uvicorn", "--port=0", "--lifespan=off", "tests.asgi.application:application"]
    with patch.dict(os.environ, environment):
        process = GuardedProcess([sys.executable, *command], output=folder / "server.log", cwd=ROOT)
    try:
        server = Server(process, folder)
        yield server
        server.stop()
    finally:
        if process.running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)


@pytest.fixture
def tree(zookeeper: ZooKeeper, namespace: str) -> Iterator[Tree]:
    with tree_at(zookeeper.hosts, namespace) as tree:
        yield tree


@pytest.fixture
def server(zookeeper: ZooKeeper, tree: Tree, tmp_path: Path) -> Iterator[Server]:
    with serving(
        tmp_path, HOSTS=zookeeper.hosts, NAMESPACE=tree.namespace, CONNECT_TIMEOUT=10
    ) as server:
        yield server
        # While its session lives, whose end would remove whatever was left.
        eventually(lambda: not tree.lock_nodes(), PATIENCE, "a tree without lock nodes")


@pytest.mark.parametrize("view", ASYNC)
def test_a_client_that_goes_away_frees_the_lock(server: Server, tree: Tree, view: str) -> None:
    with server.asked(f"/{view}/{KEY}/"):
        tree.await_line(KEY, 1)
    tree.await_line(KEY, 0)
    assert server.get(f"/tries/{KEY}/")[0] == 200
    tree.await_line(KEY, 0)


@pytest.mark.parametrize("view", ASYNC)
def test_a_client_that_goes_away_leaves_the_line(server: Server, tree: Tree, view: str) -> None:
    holder = server.getting(f"/holds/{KEY}/")
    (first,) = tree.await_line(KEY, 1)
    with server.asked(f"/{view}/{KEY}/"):
        tree.await_line(KEY, 2)
    assert tree.await_line(KEY, 1) == [first]
    server.let_go(KEY)
    assert holder.result(PATIENCE)[0] == 200
    tree.await_line(KEY, 0)


@pytest.mark.parametrize("view", SYNC)
def test_a_sync_view_whose_client_goes_away_keeps_its_lock_to_its_end(
    server: Server, tree: Tree, view: str
) -> None:
    """Its task is cancelled, and its thread works on."""
    with server.asked(f"/{view}/{KEY}/"):
        line = tree.await_line(KEY, 1)
    server.await_note(KEY, "cancelled")
    assert server.get(f"/tries/{KEY}/")[0] == 423
    assert tree.await_line(KEY, 1) == line
    server.let_go(KEY)
    server.await_note(KEY, "done")
    tree.await_line(KEY, 0)
    if view == "forgets_sync":  # it is logged after the release
        eventually(lambda: "left the lock" in server.log, PATIENCE, "a log line")
    assert server.get(f"/tries/{KEY}/")[0] == 200
    tree.await_line(KEY, 0)
    assert ("left the lock" in server.log) == (view == "forgets_sync")


def test_a_task_that_outlives_its_request_keeps_its_own_lock(server: Server, tree: Tree) -> None:
    assert server.get(f"/leaves_work/{KEY}/")[2] == {"held": False}
    line = tree.await_line(KEY, 1)
    assert server.get(f"/tries/{KEY}/")[0] == 423
    assert tree.await_line(KEY, 1) == line
    server.let_go(KEY)
    tree.await_line(KEY, 0)
    assert "left the lock" not in server.log
