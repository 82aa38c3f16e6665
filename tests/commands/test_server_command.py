from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from distlock.management.subcommands import server
from distlock_chaos import install
from distlock_chaos.ports import PortInUse, free_ports, require_free
from tests.kit.helpers import alive, raw_client, spawn_python

CODE = """
import sys
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "distlock", "server", *sys.argv[1:]])
"""

READY = re.compile(r"ZooKeeper ready on (\S+) \((\d) nodes?, data in (/.+)\)\n")


EMBEDDED = re.compile(
    r"ZooKeeper ready on (127.0.0.1:\d+) "
    r"\(embedded; for development: one process, nothing on disk, no replication\)\n"
)


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    with spawn_python(CODE, *arguments) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = READY.fullmatch(line)
        assert ready, f"{line!r} {process.communicate(timeout=30)}"
        yield process, ready[1], Path(ready[3])


def servers_of(folder: Path) -> list[int]:
    """The Java processes that keep their data in `folder`."""
    listed = subprocess.run(
        ["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True
    )
    lines = [line for line in listed.stdout.splitlines() if f"{folder}/node-" in line]
    return [int(line.split()[0]) for line in lines if "guard.py" not in line]


def first_of_free_ports(count: int) -> int:
    """The first of as many free ports, one after the other."""
    while True:
        (first,) = free_ports(1)
        with suppress(PortInUse):
            for port in range(first, first + count):
                require_free(port)
            return first


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_ends_with_status_0(number: signal.Signals) -> None:
    with running("--port", "0") as (process, hosts, folder):
        assert process.stdout is not None
        assert process.stdout.readline() == f'DISTLOCK = {{"default": {{"HOSTS": "{hosts}"}}}}\n'
        with raw_client(hosts) as client:
            assert client.exists("/zookeeper")
        pids = servers_of(folder)
        assert len(pids) == 1

        process.send_signal(number)
        rest, errors = process.communicate(timeout=30)
        assert (process.returncode, rest, errors) == (0, "", "")
        assert not any(alive(pid) for pid in pids)
        assert not folder.exists()


def test_three_nodes_on_the_asked_ports_with_named_data(tmp_path: Path) -> None:
    port = first_of_free_ports(3)
    arguments = ("--nodes", "3", "--port", str(port), "--data-dir", str(tmp_path))
    with running(*arguments) as (process, hosts, folder):
        assert hosts == ",".join(f"127.0.0.1:{port + node}" for node in range(3))
        assert folder == tmp_path
        pids = servers_of(folder)
        assert len(pids) == 3
        process.terminate()
        assert process.wait(30) == 0
        assert not any(alive(pid) for pid in pids)
    assert (tmp_path / "node-3/data/version-2").is_dir()


def test_a_server_that_dies_ends_the_command_with_an_error() -> None:
    with running("--port", "0") as (process, _, folder):
        (pid,) = servers_of(folder)
        os.kill(pid, signal.SIGKILL)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "CommandError: ZooKeeper ended by itself" in errors


def test_several_nodes_without_java_are_an_error_that_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(install, "HOMEBREW", ())
    handlers = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
    with pytest.raises(CommandError, match="apt-get install zookeeper"):
        call_command("distlock", "server", nodes=3, port=0)
    assert [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)] == handlers


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        pytest.param(["--embedded"], {}, id="when asked"),
        pytest.param([], {"PATH": "", "JAVA_HOME": ""}, id="without Java"),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_embedded_server_runs(
    arguments: list[str], environment: dict[str, str], number: signal.Signals
) -> None:
    arguments = ["--port", "0", *arguments]
    with spawn_python(CODE, *arguments, environment=environment) as process:
        assert process.stdout is not None
        ready = EMBEDDED.fullmatch(process.stdout.readline())
        assert ready, process.communicate(timeout=30)
        assert ready[1] in process.stdout.readline()
        with raw_client(ready[1]) as client:
            assert client.exists("/zookeeper")
            process.send_signal(number)
            rest, errors = process.communicate(timeout=30)
        assert (process.returncode, rest, errors) == (0, "", "")


@pytest.mark.parametrize("asked", [{"nodes": 3}, {"data_dir": "/srv/zookeeper"}])
def test_the_embedded_server_has_one_node_and_no_data_folder(asked: dict[str, Any]) -> None:
    with pytest.raises(CommandError, match="is one process, and keeps nothing on disk"):
        call_command("distlock", "server", embedded=True, **asked)


def test_a_port_in_use_is_an_error_of_the_embedded_server_too() -> None:
    with socket.create_server(("127.0.0.1", *free_ports(1))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=rf"already in use .*127\.0\.0\.1.*{port}"):
            call_command("distlock", "server", port=port, embedded=True)


def test_the_embedded_server_is_there_without_the_package_of_real_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "find_spec", lambda _: None)
    with socket.create_server(("127.0.0.1", *free_ports(1))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=rf"already in use .*127\.0\.0\.1.*{port}"):
            call_command("distlock", "server", port=port)


@pytest.mark.parametrize("asked", [{"nodes": 3}, {"data_dir": "/srv/zookeeper"}])
def test_without_the_package_of_real_servers_the_message_names_it(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    monkeypatch.setattr(server, "find_spec", lambda _: None)
    with pytest.raises(CommandError, match="install django-distlock-chaos"):
        call_command("distlock", "server", **asked)
