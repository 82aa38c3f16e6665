"""`manage.py serve_demo`: the shop in your browser."""

from __future__ import annotations

import os
import socket
import tempfile
from argparse import ArgumentTypeError
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from example_project.shop import traffic
from example_project.shop.management.commands.fill_shelves import PASSWORD, USER
from example_project.shop.runner import (
    NoServer,
    WebServer,
    backing,
    environment,
    redis_backing,
    sigterm_as_exit,
)
from example_project.shop.tangle import tangled

MOST_CUSTOMERS = 100


class Command(BaseCommand):
    help = (
        "Keep the shop running on loopback until Ctrl-C: starts ZooKeeper, or the embedded server "
        "where it is not installed, unless DISTLOCK_HOSTS is set, and a Redis, if it is installed, "
        "for the lock of one product, unless DISTLOCK_REDIS is set, migrates the database, adds "
        "demo products and a demo login, runs gunicorn."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--port", type=int, default=8000, help="of loopback (8000; 0: a free one)"
        )
        parser.add_argument("--processes", type=int, default=4, help="gunicorn workers (4)")
        parser.add_argument(
            "--load",
            type=crowd,
            default=0,
            metavar="N",
            help="customers who buy in waves, and staff at work under other locks (0: nobody)",
        )
        parser.add_argument(
            "--deadlock",
            action="store_true",
            help="three more processes that wait for each other in a circle, again and again",
        )

    def handle(
        self, *_: Any, port: int, processes: int, load: int, deadlock: bool, **__: Any
    ) -> None:
        if is_taken(port):
            free = next(other for other in range(port + 1, 65536) if not is_taken(other))
            raise CommandError(
                f"Port {port} is taken. Try --port {free}, or make serve ARGS=--port={free}"
            )
        with ExitStack() as stack:
            stack.enter_context(sigterm_as_exit())
            stack.enter_context(backing(temporary_database=False, zookeeper=True))
            try:
                stack.enter_context(redis_backing(wait=False))
            except NoServer as error:
                self.stderr.write(f"The lock of the tent is not on Redis. {error}")
            call_command("fill_shelves")
            if load:
                slow_down(stack)
            # A customer who waits for a lock keeps a thread; those who look need some, too.
            server = stack.enter_context(
                WebServer(processes=processes, port=port, threads=4 + load)
            )
            address = f"http://127.0.0.1:{server.port}"
            self.tell("The shop is open:", f"{address}/")
            locks = reverse("admin:distlock_lock_changelist")
            self.tell("The locks:", f"{address}{locks}", f"(login {USER}, password {PASSWORD})")
            hosts = settings.DISTLOCK["default"]["HOSTS"]
            self.tell("Incidents:", f"DISTLOCK_HOSTS={hosts} python manage.py incident")
            if load:
                stack.enter_context(traffic.Traffic(server.port, customers=load))
                self.tell("At work:", f"{load} customers, and the staff; --load 0 for peace")
            if deadlock:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-tangle-"))
                stack.enter_context(tangled(Path(folder)))
                self.tell("In a deadlock:", "three processes, every 20 s")
            self.stdout.write("Ctrl-C closes it.")
            self.stdout.flush()
            try:
                status = server.wait()
            except KeyboardInterrupt:
                self.stdout.write("\nClosed.")
                return
            raise CommandError(f"gunicorn ended with status {status}.\n{server.log_tail()}")

    def tell(self, what: str, said: str, *more: str) -> None:
        self.stdout.write(" ".join([what.ljust(18), self.style.SUCCESS(said), *more]))


def is_taken(port: int) -> bool:
    """Return whether another program listens on a port of loopback."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


def crowd(text: str) -> int:
    """How many customers: each keeps a thread here, and one in a worker."""
    size = int(text)
    if not 0 <= size <= MOST_CUSTOMERS:
        raise ArgumentTypeError(f"0 to {MOST_CUSTOMERS}")
    return size


def slow_down(stack: ExitStack) -> None:
    """Let the shop be slow enough for queues that can be watched, unless told how slow it is."""
    for name in ("PAYMENT_SECONDS", "LOCK_SECONDS"):
        if name not in os.environ:
            stack.enter_context(environment(name, str(getattr(traffic, name))))
