"""A real PostgreSQL server on loopback, for tests and the example shop."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from distlock_chaos.clock import with_clock
from distlock_chaos.guard import GuardedProcess
from distlock_chaos.install import ServerError, ServerNotInstalled
from distlock_chaos.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 10.0


class PostgresNotInstalled(ServerNotInstalled):
    """No PostgreSQL server programs on this machine. The message says what to type."""


class PostgresFailed(ServerError):
    """A server did not start. The message holds its log."""


class Postgres:
    """A PostgreSQL server on loopback, with a free port and a folder of its own.

    It writes without fsync, and ends with `stop` and with this process, however that ends.

    :param options: settings of the server
    :param primary: the server whose standby it is
    :param stepping_clock: whether its time of day can be set, which needs a C compiler
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        primary: Self | None = None,
        *,
        stepping_clock: bool = False,
    ) -> None:
        self.url = ""
        self.options = options or {}
        self._primary = primary
        self._stepping_clock = stepping_clock
        self._folder: Path | None = None
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Choose port and folder, and return when it serves."""
        self.home = self._folder = Path(tempfile.mkdtemp(prefix="distlock-postgres-"))
        try:
            self._make_cluster(self.home)
            self.run()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it, and remove its folder. Repeating it is fine."""
        self.shut_down()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self.url, self._folder = "", None

    def shut_down(self) -> None:
        """End it in order, without waiting for its clients to leave."""
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send(how)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.send(signal.SIGQUIT)
            self._process.wait(STOP_TIMEOUT)
        self._process = None

    @property
    def port(self) -> int:
        """The port of the server."""
        return urlsplit(self.url).port or 5432

    def _make_cluster(self, folder: Path) -> None:
        as_user, data = as_postgres(folder), folder / "data"
        command: list[str | Path] = [programs() / "postgres", "-D", data]
        if self._stepping_clock:
            command = with_clock(folder, command)
        self._command = [*as_user, *command]
        if self._primary is None:
            make = ["initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8"]
            make += ["--locale=C"]
        else:
            make = ["pg_basebackup", "--checkpoint=fast", "--write-recovery-conf"]
            make += ["--dbname", f"{self._primary.url}?application_name=standby"]
        made = subprocess.run(
            [*as_user, programs() / make[0], *make[1:], "--no-sync", "--pgdata", data],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise PostgresFailed(f"{make[0]} failed:\n{made.stdout}{made.stderr}")
        (port,) = free_ports(1)
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def run(self) -> None:
        """Start it in the folder and on the port that it has."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            **self.options,
        }
        log = self.home / "postgres.log"
        self._process = GuardedProcess(
            [*self._command, *(f"--{name}={value}" for name, value in options.items())],
            output=log,
            cwd=self.home,
            folder=self.home,
            last_signal=signal.SIGQUIT,
        )
        await_sessions("PostgreSQL", self.port, self._process, log)


def as_postgres(folder: Path) -> list[str | Path]:
    """Return how to begin a command in a folder: PostgreSQL's programs refuse to run as root."""
    if os.geteuid() != 0:
        return []
    shutil.chown(folder, "postgres", "postgres")
    # It becomes the program and keeps its id.
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]


def programs() -> Path:
    """The folder of initdb and postgres: of the newest Debian package, else on PATH."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    if found := sorted(versions, key=lambda path: float(path.parts[-3])):
        return found[-1].parent
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    raise PostgresNotInstalled(
        "PostgreSQL was not found. Install it with `apt-get install postgresql` (Debian, Ubuntu) "
        "or `brew install postgresql` (macOS)."
    )


def await_sessions(name: str, port: int, process: GuardedProcess, log: Path) -> None:
    """Wait until a server, or a pooler, accepts sessions.

    Raises `PostgresFailed` with its log if it does not.
    """
    ready: list[str | Path] = [
        programs() / "pg_isready",
        "--quiet",
        "--host=127.0.0.1",
        f"--port={port}",
    ]
    deadline = time.monotonic() + START_TIMEOUT
    while subprocess.run(ready, check=False).returncode:
        if not process.running or time.monotonic() > deadline:
            raise PostgresFailed(f"{name} did not start:\n{log.read_text()}")
        time.sleep(0.05)
