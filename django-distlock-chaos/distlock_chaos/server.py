"""Real ZooKeeper servers on loopback, for tests, demonstrations and `manage.py distlock server`.

    with ZooKeeper(nodes=3) as zookeeper:
        connect(zookeeper.hosts)
        zookeeper.leader().kill()

The servers answer before their data is on the disk (`forceSync=no`): quick, and not for
production.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distlock_chaos.guard import GuardedProcess
from distlock_chaos.install import ServerError, ServerNotInstalled, java, zookeeper_jars
from distlock_chaos.ports import PortInUse, free_ports, require_free

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

__all__ = [
    "PortInUse",
    "Server",
    "ServerError",
    "ServerFailed",
    "ServerNotInstalled",
    "ZooKeeper",
]

START_TIMEOUT = 30.0
STOP_TIMEOUT = 5.0
POLL_INTERVAL = 0.02

JVM = (
    "-Xms32m",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dznode.container.checkIntervalMs=1000",
)

CONFIG = {
    "tickTime": "1000",
    "initLimit": "10",
    "syncLimit": "5",
    "clientPortAddress": "127.0.0.1",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
    "maxClientCnxns": "0",
    "forceSync": "no",
}

# ZooKeeper logs through log4j 1 on Debian and through logback in Apache's own package.
LOGGING = {
    "log4j.properties": """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %-5p %c{1}: %m%n
""",
    "logback.xml": """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
""",
}


class ServerFailed(ServerError):
    """A server ended, or did not answer in time. The message holds the end of its log."""


class Server:
    """One ZooKeeper server process. It keeps its port and its data over restarts."""

    def __init__(self, port: int, folder: Path, *, temporary: Path | None) -> None:
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        self._temporary = temporary
        self._log = folder / "zookeeper.log"
        self._java: list[str] = []
        self._process: GuardedProcess | None = None

    def __repr__(self) -> str:
        return f"<Server {self.address} {self.mode or 'down'}>"

    @property
    def process(self) -> GuardedProcess:
        """The server's process. Raises `ServerFailed` when it is not running."""
        if self._process is None or not self._process.running:
            raise ServerFailed(f"ZooKeeper on {self.address} is not running.")
        return self._process

    @property
    def pid(self) -> int:
        """The id of the server's process. Raises `ServerFailed` when it is not running."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._process is not None and self._process.running

    @property
    def mode(self) -> str | None:
        """`standalone`, `leader` or `follower`; None while it serves nobody (down, no quorum)."""
        with suppress(OSError):
            for line in self.command("srvr", timeout=1).splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ")
        return None

    def configure(
        self, java: Sequence[str], class_path: Sequence[Path], config: Mapping[str, str]
    ) -> None:
        """Write the files that the process reads when it starts."""
        data, zoo_cfg = self.folder / "data", self.folder / "zoo.cfg"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(self.folder.name.removeprefix("node-") + "\n")
        lines = {**config, "clientPort": str(self.port), "dataDir": str(data)}
        zoo_cfg.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        for name, text in LOGGING.items():
            (self.folder / name).write_text(text)
        path = ":".join(map(str, [*class_path, self.folder]))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._java = [*java, "-cp", path, main, str(zoo_cfg)]

    def start(self, *, wait: bool = True) -> None:
        """Start the process if it is not running, and wait until it serves.

        Of an ensemble without a quorum no server serves: start those with `wait=False`.
        """
        if not self.running:
            self._process = GuardedProcess(
                self._java, output=self._log, cwd=self.folder, folder=self._temporary
            )
        if wait:
            self.wait_until_serving()

    def wait_until_serving(self, timeout: float = START_TIMEOUT) -> None:
        """Wait until it answers `srvr` with a mode. Raises `ServerFailed` with its log's end."""
        deadline = time.monotonic() + timeout
        while self.mode is None:
            why = "" if self.running else "ended at its start"
            if time.monotonic() > deadline:
                why = f"does not serve after {timeout:g} s"
            if why:
                raise ServerFailed(f"ZooKeeper on {self.address} {why}.\n{self.log_tail()}")
            time.sleep(POLL_INTERVAL)

    def stop(self) -> None:
        """End it in order (SIGTERM), by force if it takes too long. It can be started again."""
        self.terminate()
        if self._process is not None:
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.kill()

    def terminate(self) -> None:
        """Ask it to end, and do not wait for it."""
        if self._process is not None:
            self._process.send(signal.SIGTERM)
            self._process.send(signal.SIGCONT)  # A paused process ends only when it runs again.

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self._process is not None:
            self._process.send(signal.SIGKILL)
            self._process.wait()

    def erase(self) -> None:
        """Remove all data; the process must be gone."""
        shutil.rmtree(self.folder / "data/version-2")

    def pause(self) -> None:
        """SIGSTOP: the process keeps its connections and, from the return on, says nothing."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send(signal.SIGCONT)

    def wait(self) -> None:
        """Wait until the process has ended."""
        self.process.wait()

    def command(self, word: str, *, timeout: float = 5) -> str:
        """The answer to one of ZooKeeper's four-letter words. Raises `OSError`."""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log."""
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        return "\n".join(log.splitlines()[-lines:])


class ZooKeeper:
    """A standalone server, or an ensemble of `nodes` servers, on loopback.

    `port` is the first client port (free ones are chosen when it is None); `data_dir` keeps the
    data (None: a temporary folder that `stop` removes); `config` adds to or replaces lines of
    zoo.cfg; `jvm` adds arguments of Java, such as `-Dzookeeper.preAllocSize=256`.

    The servers end with `stop`, and with this process however it ends. Raises `ValueError` for
    a bad argument; `start` raises `ServerNotInstalled`, `PortInUse` or `ServerFailed`.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        port: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        if nodes < 1 or nodes % 2 == 0:
            raise ValueError(
                f"nodes is {nodes}: give an odd number such as 1, 3 or 5. "
                "An even ensemble survives no more failures than the next smaller odd one."
            )
        if port is not None and not 1 <= port <= 65536 - nodes:
            raise ValueError(f"port is {port}: give one from 1 to {65536 - nodes}.")
        self.nodes = nodes
        self.servers: list[Server] = []
        self._port = port
        self._config = {**CONFIG, **(config or {})}
        self._jvm = (*JVM, *jvm)
        self.data_dir = None if data_dir is None else Path(data_dir).absolute()
        self._temporary: Path | None = None
        self._owner = os.getpid()

    @property
    def hosts(self) -> str:
        """The connection string of all servers."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> Self:
        """Start all servers that do not run, and wait until every one serves."""
        if self._owner != os.getpid():
            raise ServerFailed("These servers belong to the parent of this forked process.")
        try:
            if not any(server.running for server in self.servers):
                self._prepare()
            for server in self.servers:
                server.start(wait=False)
            for server in self.servers:
                server.wait_until_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all servers and remove the temporary folder. In a forked child it does nothing."""
        if self._owner != os.getpid():
            return
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            server.stop()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def leader(self, timeout: float = START_TIMEOUT) -> Server:
        """The server that leads, or the standalone one; waits for an election that is under way."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = [one for one in self.servers if one.mode in {"leader", "standalone"}]
            if len(found) == 1:
                return found[0]
            time.sleep(POLL_INTERVAL)
        raise ServerFailed(f"The ensemble has no leader after {timeout:g} s: {self.servers}.")

    def followers(self) -> list[Server]:
        """The servers that follow a leader now."""
        return [server for server in self.servers if server.mode == "follower"]

    def _class_path(self) -> list[Path]:
        """The jars of the servers."""
        return zookeeper_jars()

    def _prepare(self) -> None:
        program = java()
        if not self.servers:
            self._choose_ports_and_folders()
        jars = self._class_path()
        for server in self.servers:
            require_free(server.port)
        for server in self.servers:
            server.configure([str(program), *self._jvm], jars, self._config)

    def _choose_ports_and_folders(self) -> None:
        if self._port:
            ports = [self._port + node for node in range(self.nodes)]
        else:
            ports = free_ports(self.nodes)
        numbers = range(1, self.nodes + 1)
        if self.nodes > 1:
            internal = free_ports(2 * self.nodes, other_than=ports)
            for number, peer, election in zip(numbers, internal[::2], internal[1::2], strict=True):
                self._config[f"server.{number}"] = f"127.0.0.1:{peer}:{election}"
        if self.data_dir is None:
            self.data_dir = self._temporary = Path(tempfile.mkdtemp(prefix="distlock-zookeeper-"))
        self.servers = [
            Server(port, self.data_dir / f"node-{number}", temporary=self._temporary)
            for number, port in zip(numbers, ports, strict=True)
        ]
