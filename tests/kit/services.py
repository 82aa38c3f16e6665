"""The real parts, other than ZooKeeper, that the tests start for themselves."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

import distlock
from distlock_chaos import postgres_server
from distlock_chaos.clock import set_clock
from distlock_chaos.guard import GuardedProcess
from distlock_chaos.ports import free_ports
from distlock_chaos.postgres_server import PostgresNotInstalled, as_postgres, await_sessions
from distlock_chaos.redis_server import Redis, RedisNotInstalled
from tests.settings import database_at

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Postgres", "PostgresNotInstalled", "Redis", "RedisNotInstalled", "Service"]

STOP_TIMEOUT = 10.0
#: The tables and functions of locks, as the migration makes them.
TREE = Path(distlock.__file__).parent / "engine/postgresql/tree.sql"


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


class Postgres(postgres_server.Postgres):
    """A PostgreSQL server of the tests' own, or the one that `DATABASE_URL` names.

    :param own: a server in any case, with these settings, that a test may stop
    """

    def __init__(self, own: dict[str, str] | None = None, *arguments: Any, **options: Any) -> None:
        super().__init__(own, *arguments, **options)
        self.url = os.environ.get("DATABASE_URL", "") if own is None else ""
        self._databases = itertools.count()
        #: What a test needs to remember of it: a value for ``HOSTS``.
        self.hosts = ""

    def start(self) -> Self:
        return self if self.url else super().start()

    def crash(self) -> None:
        """End all its processes at once."""
        self._end(signal.SIGQUIT)

    def set_clock(self, ahead: float) -> None:
        """Let its clock be so many seconds ahead of the machine's; needs `stepping_clock`."""
        set_clock(self.home, ahead)

    def ask(self, query: str, *arguments: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Return the rows that a query gives."""
        url = self.url.rpartition("/")[0]
        with psycopg.connect(f"{url}/{database}", autocommit=True) as connection:
            cursor = connection.execute(query.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """Return a value for ``HOSTS``: a database that nobody has used, with the tables of locks.

        `tests.settings` knows its alias.
        """
        name = f"locks_{os.getpid()}_{next(self._databases)}"
        self.ask(f"CREATE DATABASE {name}")
        self.ask(TREE.read_text(), database=name)
        return f"database:{self.url.rpartition('/')[0]}/{name}"

    def settings(self) -> dict[str, dict[str, Any]]:
        """The value of Django's `DATABASES`."""
        return {"default": database_at(self.url)}


class PgBouncerNotInstalled(RuntimeError):
    """No PgBouncer on this machine."""


class PgBouncer(Service):
    """A pooler in transaction mode, before a server of the tests.

    :param connections: how many it has to each database of the server
    """

    def __init__(self, server: Postgres, connections: int = 2) -> None:
        self._server = server
        self._connections = connections
        self._process: GuardedProcess | None = None

    def start(self) -> Self:
        program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        if not Path(program).exists():
            raise PgBouncerNotInstalled(
                "PgBouncer was not found. Install it with `apt-get install pgbouncer`."
            )
        folder = self._new_folder("pgbouncer")
        (self.port,) = free_ports(1)
        (folder / "users.txt").write_text('"postgres" ""\n')
        (folder / "pgbouncer.ini").write_text(
            f"""
            [databases]
            * = host=127.0.0.1 port={self._server.port}
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = {self.port}
            unix_socket_dir =
            auth_type = trust
            auth_file = {folder}/users.txt
            pool_mode = transaction
            default_pool_size = {self._connections}
            server_login_retry = 1
            """
        )
        command = [*as_postgres(folder), program, folder / "pgbouncer.ini"]
        log = folder / "pgbouncer.log"
        self._process = GuardedProcess(command, output=log, cwd=folder, folder=folder)
        await_sessions("PgBouncer", self.port, self._process, log)
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.send(signal.SIGKILL)
            self._process.wait(STOP_TIMEOUT)
            self._process = None
        self._remove_folder()

    def hosts(self, hosts: str) -> str:
        """Return a value for ``HOSTS`` of the server, by way of this pooler."""
        return hosts.replace(f"127.0.0.1:{self._server.port}/", f"127.0.0.1:{self.port}/")
