"""Starts what the shop needs (databases, ZooKeeper, Redis, gunicorn) and ends all of it again.

Everything is a context manager, and every child is guarded: it ends with this process,
be that in order, by Ctrl-C, SIGTERM or an exception, or by SIGKILL.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured  # psycopg may be missing
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, connections
from django.test import override_settings

from distlock import DistlockError, history, zk_lock
from distlock_chaos.guard import GuardedProcess
from distlock_chaos.install import ServerError
from distlock_chaos.postgres_server import Postgres
from example_project.settings import database

if TYPE_CHECKING:
    from typing_extensions import Self

PROJECT = Path(__file__).resolve().parents[2]
START_SECONDS = 30
STOP_SECONDS = 8


class ServerFailed(CommandError):
    """gunicorn ended, or did not answer in time. The message holds the end of its log."""


class NoServer(CommandError):
    """No server of this kind can hold locks for this process. The message says why."""


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that every child is ended."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def backing(*, temporary_database: bool, zookeeper: bool) -> Iterator[None]:
    """Provide a migrated database and, if asked for, a ZooKeeper, to this process and its children.

    What `DATABASE_URL` and `DISTLOCK_HOSTS` name is used as it is. Where ZooKeeper is not
    installed, the embedded server takes its place, and the line on stderr says so.
    """
    with ExitStack() as stack:
        if temporary_database and not os.environ.get("DATABASE_URL"):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="flash-sale-"))
            stack.enter_context(_use_database(Path(folder, "sale.sqlite3")))
        if zookeeper and not os.environ.get("DISTLOCK_HOSTS"):
            hosts = stack.enter_context(_zookeeper())
            stack.enter_context(_use_servers(hosts, "default", "DISTLOCK_HOSTS"))
        call_command("migrate", interactive=False, verbosity=0)
        yield


@contextmanager
def redis_backing(*, wait: bool = True) -> Iterator[None]:
    """Provide a Redis to the alias `redis`, in this process and its children.

    The server that `DISTLOCK_REDIS` names is used as it is. Raises `NoServer` if there is none.

    :param wait: whether to wait until it grants locks, which one that has just started does not
    """
    with ExitStack() as stack:
        try:
            if not os.environ.get("DISTLOCK_REDIS"):
                from distlock_chaos.redis_server import Redis  # noqa: PLC0415 - redis-py may be missing

                hosts = stack.enter_context(Redis()).hosts
                stack.enter_context(_use_servers(hosts, "redis", "DISTLOCK_REDIS"))
            if wait:
                with zk_lock("sale", using="redis", timeout=30):  # an old server, for one, refuses
                    pass
        except ImportError as error:
            raise NoServer("Install redis-py with `pip install 'redis[hiredis]'`.") from error
        except (ServerError, DistlockError) as error:
            raise NoServer(str(error)) from error
        yield


@contextmanager
def postgresql_backing() -> Iterator[None]:
    """Provide a PostgreSQL to the alias `postgresql`, as `redis_backing` does."""
    with ExitStack() as stack:
        try:
            if not os.environ.get("DISTLOCK_POSTGRESQL"):
                url = stack.enter_context(Postgres()).url
                usual = {**connection.settings_dict, "OPTIONS": {}}
                connections.settings["locks"] = {**usual, **database(url)}
                variable = "DISTLOCK_POSTGRESQL"
                stack.enter_context(_use_servers("database:locks", "postgresql", variable, url))
            call_command("migrate", "distlock", database="locks", verbosity=0)
            with zk_lock("sale", using="postgresql", timeout=30):
                pass
        except (ServerError, DatabaseError, DistlockError, ImproperlyConfigured) as error:
            raise NoServer(str(error)) from error
        yield


@contextmanager
def _use_database(path: Path) -> Iterator[None]:
    # As Django's own test runner points a connection at another database.
    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = str(path)
    try:
        with environment("DATABASE_URL", f"sqlite:///{path}"):
            yield
    finally:
        history.flush()  # what this process has counted belongs there
        connection.close()
        connection.settings_dict["NAME"] = before


@contextmanager
def _zookeeper() -> Iterator[str]:
    """Run `manage.py distlock server` until the end of the block; yield its hosts.

    A process of its own: nobody who kills or stops workers shall touch it.
    """
    with tempfile.TemporaryDirectory(prefix="shop-zookeeper-") as folder:
        log = Path(folder, "log")
        process = GuardedProcess(
            [sys.executable, "manage.py", "distlock", "server", "--port", "0"],
            output=log,
            cwd=PROJECT,
            last_signal=signal.SIGTERM,
            piped=True,
        )
        try:
            line = process.stdout.readline()
            ready = re.match(r"ZooKeeper ready on (\S+)", line)
            if ready is None:
                raise CommandError(log.read_text().strip().removeprefix("CommandError: "))
            sys.stderr.write(line)
            yield ready[1]
        finally:
            process.send(signal.SIGTERM)
            process.wait()


@contextmanager
def _use_servers(hosts: str, alias: str, variable: str, value: str = "") -> Iterator[None]:
    """Let this process and, by the variable, its children find the locks of an alias there."""
    known = settings.DISTLOCK
    aliases = {**known, alias: {**known["default"], "HOSTS": hosts}}
    with override_settings(DISTLOCK=aliases), environment(variable, value or hosts):
        yield


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Give this process and its children an environment variable, for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class WebServer:
    """gunicorn with several worker processes, on a free port of loopback unless one is named.

    `standstill`: a worker may stand still for so many seconds before it is killed (gunicorn's own
    limit: 30). Then none takes more requests than it has threads for, lest it keep all waiting.
    """

    def __init__(
        self,
        *,
        processes: int,
        threads: int = 4,
        preload: bool = False,
        port: int = 0,
        standstill: int | None = None,
    ) -> None:
        self._arguments = [
            *("--config", "python:example_project.gunicorn_conf"),
            *("--workers", str(processes)),
            *("--threads", str(threads)),
            *("--bind", f"127.0.0.1:{port}"),
            *(["--preload"] if preload else []),
            *(
                ["--timeout", str(standstill), "--worker-connections", str(threads + 1)]
                if standstill
                else []
            ),
        ]
        self.port = port

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="flash-sale-web-")
        self._log = Path(self._folder.name, "gunicorn.log")
        with ExitStack() as undo:
            undo.callback(self._folder.cleanup)
            # Tracebacks belong in the log, not in a buyer's browser.
            with environment("DEBUG", "0"):
                self._process = GuardedProcess(
                    [sys.executable, "-m", "gunicorn", *self._arguments],
                    output=self._log,
                    cwd=PROJECT,
                    last_signal=signal.SIGTERM,
                )
            undo.callback(self._stop)
            self._wait_until_serving()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def running(self) -> bool:
        return self._process.running

    def runs(self, pid: int) -> bool:
        """Whether this process id is one of the server's workers."""
        try:
            return pid != self._process.pid and os.getpgid(pid) == self._process.pid
        except ProcessLookupError:
            return False

    def wait(self) -> int:
        """Wait until the server has ended, and return its status."""
        return self._process.wait()

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _wait_until_serving(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._serves():
            if not self.running or time.monotonic() > deadline:
                raise ServerFailed(f"gunicorn does not serve.\n{self.log_tail()}")
            time.sleep(0.05)

    def _serves(self) -> bool:
        if not self.port:
            # It binds port 0 and says which one it got: no port can be taken in between.
            listening = re.search(r"Listening at: http://[\d.]+:(\d+)", self._log.read_text())
            if listening is None:
                return False
            self.port = int(listening[1])
        page = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            page.request("GET", "/", headers={"Connection": "close"})
            return page.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            page.close()

    def _stop(self) -> None:
        self._process.send(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send(signal.SIGKILL)
            self._process.wait()
        finally:
            # Workers that a hurried arbiter left behind are still in its process group.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
