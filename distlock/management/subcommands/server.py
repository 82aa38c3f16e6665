"""`manage.py distlock server`: runs a ZooKeeper on loopback, in the foreground."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.conf import Configuration
from distlock.embedded.server import EmbeddedZooKeeper
from distlock.engine.hosts import engine_of
from distlock.management.interrupts import ended_by_signals

HELP = "Run a ZooKeeper on loopback until Ctrl-C, for development and tests."
EXAMPLES = {
    "server": "one server on port 2181",
    "server --nodes 3 --port 0": "an ensemble, on free ports",
    "server --embedded": "without Java, with nothing on disk",
}

#: The distribution that runs real servers.
_REAL: Final = "distlock_chaos"


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
        "django-distlock-chaos, ZooKeeper or Java is missing)",
    )


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    def ready(hosts: str, about: str) -> None:
        settings = f'DISTLOCK = {{"default": {{"HOSTS": "{hosts}"}}}}'
        command.stdout.write(f"ZooKeeper ready on {hosts} ({about})\n{settings}\n")
        command.stdout.flush()

    can_be_embedded = options["nodes"] == 1 and options["data_dir"] is None
    real = find_spec(_REAL) and not options["embedded"]
    if not real and not can_be_embedded:
        raise CommandError(
            "The embedded server is one process, and keeps nothing on disk. For more, leave out "
            "--embedded, and install django-distlock-chaos."
        )
    with suppress(KeyboardInterrupt), ended_by_signals():
        if real:
            import_module(f"{_REAL}.serving").serve(options, ready, or_not=can_be_embedded)
        try:
            with EmbeddedZooKeeper(port=options["port"]) as zookeeper:
                ready(zookeeper.hosts, engine_of("embedded").shown(Configuration(hosts="embedded")))
                zookeeper.wait()
        except OSError as error:
            raise CommandError(str(error)) from error
