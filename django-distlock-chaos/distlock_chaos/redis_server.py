"""A real Redis server on loopback, for tests and `manage.py distlock chaos`."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from unittest.mock import patch

from redis import Redis as RedisPy
from redis.exceptions import ResponseError

from distlock.conf import Configuration
from distlock.engine.redis import requests
from distlock.engine.redis.library import CODE
from distlock.engine.redis.requests import beginning, call, good_bye, session_arguments
from distlock_chaos.clock import set_clock, with_clock
from distlock_chaos.guard import GuardedProcess
from distlock_chaos.install import ServerError, ServerNotInstalled
from distlock_chaos.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

_Command: TypeAlias = "tuple[str | int, ...]"

START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 10.0

#: The errors with which a server can be made to refuse writes, how that begins, and how it ends.
REFUSALS: Final[dict[str, tuple[_Command, _Command]]] = {
    "BUSY": (("CONFIG", "SET", "lua-time-limit", 1), ("SCRIPT", "KILL")),
    "MISCONF": (("CONFIG", "SET", "save", "3600 1000000"), ("CONFIG", "SET", "save", "")),
    "NOPERM": (
        ("ACL", "SETUSER", "default", "-evalsha"),
        ("ACL", "SETUSER", "default", "+evalsha"),
    ),
    "NOREPLICAS": (
        ("CONFIG", "SET", "min-replicas-to-write", 9),
        ("CONFIG", "SET", "min-replicas-to-write", 0),
    ),
    "READONLY": (("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")),
}


class RedisNotInstalled(ServerNotInstalled):
    """No redis-server on this machine. The message says what to type."""


class RedisFailed(ServerError):
    """A server did not start. The message holds its log."""


class Redis:
    """A Redis server on loopback, with a free port and a folder of its own.

    It ends with `stop` and with this process, however that ends. The environment variable
    ``REDIS_SERVER`` names another program, such as valkey-server.

    :param options: as on the command line of redis-server; by default it has an append-only file
    :param stepping_clock: whether `set_clock` sets its time of day, which needs a C compiler
    """

    DATABASES = 1000

    def __init__(self, *options: str, stepping_clock: bool = False) -> None:
        self.options = options
        self._stepping_clock = stepping_clock
        self._folder: Path | None = None
        self._process: GuardedProcess | None = None
        self._databases = itertools.count()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Choose port and folder, and return when it serves."""
        self.home = self._folder = Path(tempfile.mkdtemp(prefix="distlock-redis-"))
        (self.port,) = free_ports(1)
        try:
            self.run()
        except BaseException:
            self.stop()
            raise
        return self

    def run(self, *, wait: bool = True) -> None:
        """Start it in the folder and on the port that it has, with its `options` of now."""
        program = shutil.which(os.environ.get("REDIS_SERVER", "redis-server"))
        if program is None:
            raise RedisNotInstalled(
                "redis-server was not found. Install it with `apt-get install redis-server` "
                "(Debian, Ubuntu) or `brew install redis` (macOS)."
            )
        command = [program, *self._arguments()]
        if self._stepping_clock:
            command = with_clock(self.home, command)
        self._process = GuardedProcess(command, output=self._log, cwd=self.home, folder=self.home)
        if wait:
            self.wait_until_serving()

    def wait_until_serving(self) -> None:
        """Wait until it answers. Raises `RedisFailed` with its log if it does not."""
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                log = self._log.read_text()
                self.stop()
                raise RedisFailed(f"Redis did not start:\n{log}")
            time.sleep(0.02)

    @property
    def running(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._process is not None and self._process.running

    def kill(self) -> None:
        """End it at once, with all that is not on disk."""
        if self._process is not None:
            self._process.send(signal.SIGKILL)
            self._process.wait(STOP_TIMEOUT)
            self._process = None

    def shut_down(self) -> None:
        """End it in order."""
        if self._process is not None:
            self._process.send(signal.SIGTERM)
            self._process.wait(STOP_TIMEOUT)
            self._process = None

    def stop(self) -> None:
        """End it, and remove its folder. Repeating it is fine."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def pause(self) -> None:
        """Stop it in the middle of what it does; `go_on` wakes it."""
        if self._process is not None:
            self._process.pause()

    def go_on(self) -> None:
        """Wake it."""
        if self._process is not None:
            self._process.send(signal.SIGCONT)

    def set_clock(self, ahead: float) -> None:
        """Let its clock be so many seconds ahead of the machine's; needs `stepping_clock`."""
        set_clock(self.home, ahead)

    def ask(self, *command: str | int | bytes, **login: Any) -> Any:
        """Return the answer to a command.

        :param login: `username` and `password`, where the default user is not asked for
        """
        client: Any = RedisPy(port=self.port, decode_responses=True, **login)
        with client:
            return client.execute_command(*command)

    def grant_at_once(self, namespace: str) -> None:
        """Say that there were no locks here before, which a server that starts cannot know.

        :param namespace: of the first database, in which no process has been yet
        """
        with patch.object(requests, "unknown_ms", lambda _: 0):
            self.visit(Configuration(hosts=self.hosts, namespace=namespace))

    def visit(self, conf: Configuration) -> None:
        """Begin a session, the first since it has no script, and end it."""
        session = session_arguments(conf, 1, b"", 1)
        self.ask("SCRIPT", "LOAD", CODE)
        self.ask(*call(session, beginning(conf, None)))
        self.ask(*call(session, good_bye()))

    @contextmanager
    def refusing(self, error: str) -> Iterator[None]:
        """Refuse writes during a block.

        :param error: one of `REFUSALS`, with which the server's answers begin
        """
        begin, end = REFUSALS[error]
        try:
            self.ask(*begin)
            if error == "BUSY":
                with socket.create_connection(("127.0.0.1", self.port)) as client:
                    client.sendall(b"EVAL 'while true do end' 0\r\n")
                    self._await_refusal()
            elif error == "MISCONF":
                in_the_way = self.home / "dump.rdb"
                if not in_the_way.is_dir():
                    in_the_way.unlink(missing_ok=True)  # a replica has asked for it
                    in_the_way.mkdir()
                self.ask("BGSAVE")
                self._await_refusal()
            yield
        finally:
            self.ask(*end)

    def _await_refusal(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            try:
                self.ask("DEL", "key")
            except ResponseError:
                return
            time.sleep(0.01)
        raise RedisFailed("The server does not refuse writes.")

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def hosts(self) -> str:
        """The URL of its first database."""
        return f"redis://{self.address}/0"

    def new_database(self) -> str:
        """Return the URL of a database that nobody has used."""
        return f"redis://{self.address}/{next(self._databases) % self.DATABASES}"

    @property
    def _log(self) -> Path:
        return self.home / "redis.log"

    def _arguments(self) -> list[str]:
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", *self.options]
        if "--cluster-enabled" not in options:
            options += ["--databases", str(self.DATABASES)]
        if "--appendonly" not in options:
            options += ["--appendonly", "yes", "--appendfsync", "no"]
        return options

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
