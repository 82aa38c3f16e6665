"""The real parts, other than ZooKeeper, that the tests start for themselves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from distlock_chaos.guard import GuardedProcess
from distlock_chaos.ports import free_ports
from distlock_chaos.redis_server import Redis, RedisNotInstalled

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Postgres", "PostgresNotInstalled", "Redis", "RedisNotInstalled", "Service"]

START_TIMEOUT = 30.0
STOP_TIMEOUT = 10.0


class Service(ABC):
    """A server with all its files in a temporary folder; a block starts and stops it."""

    _folder: Path | None = None

    @abstractmethod
    def start(self) -> Self:
        """Return when it serves."""

    @abstractmethod
    def stop(self) -> None:
        """End it. Repeating it is fine."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _new_folder(self, name: str) -> Path:
        folder = self._folder = Path(tempfile.mkdtemp(prefix=f"distlock-{name}-"))
        return folder

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


class PostgresNotInstalled(RuntimeError):
    """No PostgreSQL server programs on this machine, and no `DATABASE_URL`."""


class Postgres(Service):
    """A PostgreSQL cluster of the tests' own, or the server that `DATABASE_URL` names.

    The cluster lives in a temporary folder on a free loopback port, writes without fsync, and
    ends with `stop` and with this process, however that ends.
    """

    def __init__(self) -> None:
        self.url = os.environ.get("DATABASE_URL", "")
        self._process: GuardedProcess | None = None

    def start(self) -> Self:
        if self.url:
            return self
        try:
            self._start_cluster()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        if self._process is not None:
            # SIGINT is PostgreSQL's fast shutdown: it does not wait for its clients to leave.
            self._process.send(signal.SIGINT)
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.send(signal.SIGQUIT)
                self._process.wait(STOP_TIMEOUT)
            self._process = None
            self.url = ""
        self._remove_folder()

    def settings(self) -> dict[str, dict[str, Any]]:
        """The value of Django's `DATABASES`."""
        parts = urlsplit(self.url)
        return {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": unquote(parts.path.removeprefix("/")),
                "USER": unquote(parts.username or ""),
                "PASSWORD": unquote(parts.password or ""),
                "HOST": parts.hostname or "",
                "PORT": str(parts.port or ""),
            }
        }

    def _start_cluster(self) -> None:
        programs = _programs()
        folder = self._new_folder("postgres")
        as_user: list[str | Path] = []
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root. setpriv becomes the program and keeps its id.
            shutil.chown(folder, "postgres", "postgres")
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        data = folder / "data"
        initdb = [*as_user, programs / "initdb", "--no-sync", "--auth=trust", "--username=postgres"]
        encoding = ["--encoding=UTF8", "--locale=C"]
        made = subprocess.run(
            [*initdb, *encoding, "--pgdata", data],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed:\n{made.stdout}{made.stderr}")
        (port,) = free_ports(1)
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
        }
        log = folder / "postgres.log"
        self._process = GuardedProcess(
            [
                *as_user,
                programs / "postgres",
                "-D",
                data,
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            output=log,
            cwd=folder,
            folder=folder,
            last_signal=signal.SIGQUIT,
        )
        deadline = time.monotonic() + START_TIMEOUT
        while not _accepts_sessions(port, programs):
            if not self._process.running or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}")
            time.sleep(0.05)
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"


def _programs() -> Path:
    """The folder of initdb and postgres: of the newest Debian package, else on PATH."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    if found := sorted(versions, key=lambda path: float(path.parts[-3])):
        return found[-1].parent
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    raise PostgresNotInstalled(
        "PostgreSQL was not found. Install it with `apt-get install postgresql` (Debian, Ubuntu) "
        "or `brew install postgresql` (macOS), or set DATABASE_URL to a server."
    )


def _accepts_sessions(port: int, programs: Path) -> bool:
    ready = subprocess.run(
        [programs / "pg_isready", "--quiet", "--host=127.0.0.1", f"--port={port}"], check=False
    )
    return ready.returncode == 0
