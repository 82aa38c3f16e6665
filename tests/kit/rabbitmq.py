"""A RabbitMQ server of the tests' own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from distlock_chaos.guard import GuardedProcess
from distlock_chaos.ports import free_ports

from .services import STOP_TIMEOUT, Service

if TYPE_CHECKING:
    from typing_extensions import Self

#: The Erlang machine starts slowly where several test processes share a core.
START_TIMEOUT = 120.0


class RabbitMQNotInstalled(RuntimeError):
    """No RabbitMQ on this machine."""


class RabbitMQ(Service):
    """A RabbitMQ server on free loopback ports, with all its files in a temporary folder.

    Its port mapper (epmd), its cookie and its node name are its own, so that it meets no other
    Erlang node of the machine. It ends with `stop` and with this process, however that ends.
    """

    #: A virtual host is a broker of its own. They are made at the start: later on each would cost
    #: the start of another Erlang machine.
    HOSTS = 96

    def __init__(self) -> None:
        self._processes: list[GuardedProcess] = []
        self._hosts = itertools.count()

    def start(self) -> Self:
        server, epmd = _programs()
        folder = self._new_folder("rabbitmq")
        self._port, distribution, mapper = free_ports(3)
        (folder / "definitions.json").write_text(json.dumps(_definitions(self.HOSTS)))
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self._port}\n"
            f"load_definitions = {folder}/definitions.json\n"
            "disk_free_limit.absolute = 1MB\n"
            "log.console = true\n"
            "log.console.level = warning\n"
        )
        (folder / "plugins").write_text("[].\n")
        said = {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_ALLOW_INPUT": "1",  # become the Erlang machine, whose process id we know then
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_NODENAME": f"distlock{self._port}@localhost",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-noinput -start_epmd false -kernel inet_dist_use_interface {127,0,0,1} "
                "+S 2:2 +sbwt none"
            ),
        }
        log = folder / "rabbitmq.log"
        mapping: list[str | Path] = [epmd, "-port", str(mapper), "-address", "127.0.0.1"]
        with patch.dict(os.environ, said):
            for command in (mapping, [server]):
                process = GuardedProcess(command, output=log, cwd=folder, folder=folder)
                self._processes.append(process)
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            ended = not all(process.running for process in self._processes)
            if ended or time.monotonic() > deadline:
                written = log.read_text()
                self.stop()
                raise RuntimeError(f"RabbitMQ did not start:\n{written}")
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        while self._processes:
            process = self._processes.pop()
            process.send(signal.SIGKILL)  # nothing is to be saved
            process.wait(STOP_TIMEOUT)
        self._remove_folder()

    def new_host(self) -> str:
        """The URL of a virtual host that nobody has used."""
        number = next(self._hosts)
        if number >= self.HOSTS:
            raise RuntimeError(
                f"All {self.HOSTS} virtual hosts are in use: make RabbitMQ.HOSTS larger."
            )
        return f"amqp://tests:tests@127.0.0.1:{self._port}/t{number}"

    def _answers(self) -> bool:
        """Whether it accepts a client; definitions are loaded before."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"  # a method: connection.start
        except OSError:
            return False


def _definitions(hosts: int) -> dict[str, object]:
    names = [f"t{number}" for number in range(hosts)]
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    return {
        "users": [{"name": "tests", "password": "tests", "tags": "administrator"}],
        "vhosts": [{"name": name} for name in names],
        "permissions": [{"user": "tests", "vhost": name, **everything} for name in names],
    }


def _programs() -> tuple[Path, Path]:
    """The server's own script, since Debian's wrapper of it wants root and a system user."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    server = found[-1] if found else shutil.which("rabbitmq-server")
    epmd = shutil.which("epmd")
    if server is None or epmd is None:
        raise RabbitMQNotInstalled(
            "rabbitmq-server was not found. Install it with `apt-get install rabbitmq-server` "
            "(Debian, Ubuntu) or `brew install rabbitmq` (macOS)."
        )
    return Path(server), Path(epmd)
