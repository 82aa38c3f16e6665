"""`python -m distlock.embedded`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kit.helpers import ROOT, alive, eventually, raw_client, spawn_python
from tests.kit.tools import PATIENCE

COMMAND = [sys.executable, "-m", "distlock.embedded"]
READY = "ZooKeeper ready on "

STARTER = """
import sys
from distlock.testing.embedded import embedded_process
with embedded_process() as server:
    print(server.pid, server.hosts, flush=True)
    sys.stdin.read()
"""


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the address that it says."""
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().removeprefix(READY).strip()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal(number: signal.Signals) -> None:
    with running() as (process, hosts):
        with raw_client(hosts) as client:
            assert client.exists("/zookeeper")
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0


def test_it_ends_when_nobody_has_been_connected_for_a_while() -> None:
    with running("--idle", "0.2") as (process, _):
        assert process.wait(PATIENCE) == 0


def test_it_ends_with_its_starter() -> None:
    with spawn_python(STARTER) as starter:
        assert starter.stdout is not None
        pid, hosts = starter.stdout.readline().split()
        with raw_client(hosts) as client:
            assert client.exists("/zookeeper")
        starter.kill()
        eventually(lambda: not alive(int(pid)))


def test_it_imports_no_django() -> None:
    code = "import sys, distlock.embedded.__main__; print('django.conf' in sys.modules)"
    with spawn_python(code) as process:
        assert process.communicate(timeout=PATIENCE)[0] == "False\n"
