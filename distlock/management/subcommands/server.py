"""`manage.py distlock server`: runs a ZooKeeper on loopback, in the foreground."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.conf.rules import ABOUT_EMBEDDED
from distlock.embedded.server import EmbeddedZooKeeper
from distlock.testing.install import ServerNotInstalled, WrongHome
from distlock.testing.ports import require_free
from distlock.testing.server import ServerError, ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

HELP = "Run a ZooKeeper on loopback until Ctrl-C, for development and tests."

_EMBEDDED = f"embedded; {ABOUT_EMBEDDED}"


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--nodes", type=int, default=1, help="number of servers: 1 (default), 3 or 5"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=2181,
        help="first client port, the others follow (default 2181; 0 chooses free ones)",
    )
    parser.add_argument("--data-dir", help="keep the data here (default: a temporary folder)")
    parser.add_argument(
        "--embedded",
        action="store_true",
        help="run the embedded server, which needs no Java and keeps nothing on disk (default: if "
        "ZooKeeper or Java is missing)",
    )


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    can_be_embedded = options["nodes"] == 1 and options["data_dir"] is None
    if options["embedded"] and not can_be_embedded:
        raise CommandError("The embedded server is one process, and keeps nothing on disk.")
    try:
        with _ended_by_signals():
            if options["embedded"]:
                _serve_embedded(command, options["port"])
            else:
                _serve(command, options, or_embedded=can_be_embedded)
    except KeyboardInterrupt:
        return
    except (ServerError, ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _serve(command: BaseCommand, options: dict[str, Any], *, or_embedded: bool) -> None:
    nodes = options["nodes"]
    asked = {"port": options["port"] or None, "data_dir": options["data_dir"]}
    try:
        with ZooKeeper(nodes, **asked) as zookeeper:
            size = "1 node" if nodes == 1 else f"{nodes} nodes"
            _say_ready(command, zookeeper.hosts, f"{size}, data in {zookeeper.data_dir}")
            for server in zookeeper.servers:
                server.wait()
            raise CommandError(f"ZooKeeper ended by itself.\n{zookeeper.servers[0].log_tail()}")
    except ServerNotInstalled as missing:
        if not or_embedded or isinstance(missing, WrongHome):
            raise
    _serve_embedded(command, options["port"])


def _serve_embedded(command: BaseCommand, port: int) -> None:
    if port:
        require_free(port)
    with EmbeddedZooKeeper(port=port) as zookeeper:
        _say_ready(command, zookeeper.hosts, _EMBEDDED)
        zookeeper.wait()


def _say_ready(command: BaseCommand, hosts: str, about: str) -> None:
    command.stdout.write(
        f'ZooKeeper ready on {hosts} ({about})\nDISTLOCK = {{"default": {{"HOSTS": "{hosts}"}}}}\n'
    )
    command.stdout.flush()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM raise `KeyboardInterrupt`.

    SIGINT too: a shell starts its background jobs with SIGINT ignored.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
