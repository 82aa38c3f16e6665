"""`manage.py distlock metrics`: all locks of all aliases, for Prometheus."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock import contrib
from distlock.management import output
from distlock.management.interrupts import ended_by_signals

HELP = "Measure all locks of all aliases for Prometheus, from the lock servers: once, or at a port."
EXAMPLES = {
    "metrics": "one look, as text",
    "metrics --port 9101 --address 0.0.0.0": "for Prometheus, until Ctrl-C",
    "metrics --rules > alerts.yml": "the alerts that come with distlock",
}

#: Where the files for Prometheus and Grafana are.
_FOLDER: Final = Path(contrib.__file__).parent / "prometheus"


def add_arguments(parser: CommandParser) -> None:
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "--port", type=int, metavar="N", help="serve them at this port (0 chooses one)"
    )
    files = {
        "--rules": ("alerts.yml", "write the alert rules for Prometheus instead"),
        "--dashboard": ("dashboard.json", "write the dashboard for Grafana instead"),
    }
    for option, (file, does) in files.items():
        one.add_argument(option, dest="file", action="store_const", const=file, help=does)
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        help="where to listen (default 127.0.0.1; 0.0.0.0: on all networks)",
    )
    parser.add_argument(
        "--budget",
        type=output.seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long reading an alias may take (default 10)",
    )
    parser.epilog = output.EPILOG


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    if options["file"]:
        command.stdout.write((_FOLDER / options["file"]).read_text(encoding="utf-8"))
        return
    try:
        fleet = import_module("distlock.contrib.prometheus.fleet")
    except ImportError as error:
        raise CommandError(str(error), returncode=output.MISCONFIGURED) from error
    library = import_module("prometheus_client")
    registry = library.CollectorRegistry()
    registry.register(fleet.Fleet(options["budget"]))
    with output.exit_statuses():
        if options["port"] is None:
            command.stdout.write(library.generate_latest(registry).decode())
            return
        try:
            server, thread = library.start_http_server(
                options["port"], options["address"], registry
            )
        except OSError as error:
            raise CommandError(f"Port {options['port']}: {error.strerror}.") from error
    address = f"{options['address']}:{server.server_port}"
    command.stdout.write(f"Metrics of all locks on http://{address}/metrics until Ctrl-C.")
    command.stdout.flush()
    with suppress(KeyboardInterrupt), ended_by_signals():
        thread.join()
    server.shutdown()
    server.server_close()
