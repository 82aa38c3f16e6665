"""`manage.py serve_demo`: the shop in your browser."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.shop.models import Product
from example_project.shop.runner import WebServer, backing, sigterm_as_exit

USER = "demo"
PASSWORD = "demo"  # noqa: S105 - the shop answers on loopback only
PRODUCTS = (
    ("lamp", "Desk lamp", Product.Strategy.NAIVE),
    ("kettle", "Copper kettle", Product.Strategy.CONDITIONAL),
    ("radio", "Pocket radio", Product.Strategy.ZK),
    ("camera", "Instant camera", Product.Strategy.ZK_FENCED),
)


class Command(BaseCommand):
    help = (
        "Keep the shop running on loopback until Ctrl-C: starts ZooKeeper unless DISTLOCK_HOSTS "
        "is set, migrates the database, adds demo products and a demo login, runs gunicorn."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--port", type=int, default=8000, help="of loopback (8000; 0: a free one)"
        )
        parser.add_argument("--processes", type=int, default=4, help="gunicorn workers (4)")

    def handle(self, *_: Any, port: int, processes: int, **__: Any) -> None:
        with ExitStack() as stack:
            stack.enter_context(sigterm_as_exit())
            stack.enter_context(backing(temporary_database=False, zookeeper=True))
            fill_shelves()
            server = stack.enter_context(WebServer(processes=processes, port=port))
            address = f"http://127.0.0.1:{server.port}/"
            self.stdout.write(f"The shop is open:  {self.style.SUCCESS(address)}")
            self.stdout.write(
                f"The admin:         {address}admin/  (login {USER}, password {PASSWORD})"
            )
            self.stdout.write("Ctrl-C closes it.")
            self.stdout.flush()
            try:
                status = server.wait()
            except KeyboardInterrupt:
                self.stdout.write("\nClosed.")
                return
            raise CommandError(f"gunicorn ended with status {status}.\n{server.log_tail()}")


def fill_shelves() -> None:
    """Add what is missing of the demo products and the demo login."""
    for sku, name, strategy in PRODUCTS:
        Product.objects.get_or_create(
            sku=sku, defaults={"name": name, "quantity": 10, "strategy": strategy}
        )
    users = get_user_model().objects
    if not users.filter(username=USER).exists():
        users.create_superuser(USER, password=PASSWORD)
