"""`manage.py distlock server`: runs a real ZooKeeper on loopback, in the foreground."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.testing.server import ServerError, ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

HELP = "Run a real ZooKeeper on this machine, for development and tests."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--nodes", type=int, default=1, help="number of servers: 1 (default), 3 or 5"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=2181,
        help="first client port (default 2181; 0 chooses free ones)",
    )
    parser.add_argument("--data-dir", help="keep the data here (default: a temporary folder)")


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    nodes = options["nodes"]
    asked = {"port": options["port"] or None, "data_dir": options["data_dir"]}
    try:
        with _ended_by_signals(), ZooKeeper(nodes, **asked) as zookeeper:
            size = "1 node" if nodes == 1 else f"{nodes} nodes"
            command.stdout.write(
                f"ZooKeeper ready on {zookeeper.hosts} ({size}, data in {zookeeper.data_dir})\n"
                f'DISTLOCK = {{"default": {{"HOSTS": "{zookeeper.hosts}"}}}}\n'
            )
            command.stdout.flush()
            for server in zookeeper.servers:
                server.wait()
            raise CommandError(f"ZooKeeper ended by itself.\n{zookeeper.servers[0].log_tail()}")
    except KeyboardInterrupt:
        return
    except (ServerError, ValueError, OSError) as error:
        raise CommandError(str(error)) from error


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
