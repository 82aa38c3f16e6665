"""Finds free ports on loopback."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from distlock_chaos.install import ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence


class PortInUse(ServerError):
    """Another program listens on a port that was asked for. Stop it, or ask for another port."""


def free_ports(count: int, *, other_than: Sequence[int] = ()) -> list[int]:
    """Ports of loopback that nobody listens on, and that no outgoing connection will take.

    They lie below the range from which systems pick the local port of a connection: a stopped
    server finds its port free when it starts again, and a client that tries meanwhile cannot
    connect to itself.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(range(10_000, 32_000), 2_000):
            if len(ports) == count:
                return ports
            if port in other_than:
                continue
            with suppress(OSError):
                listener = held.enter_context(socket.socket())
                listener.bind(("127.0.0.1", port))
                ports.append(port)
    raise PortInUse(f"No {count} free ports from 10000 to 32000 were found on 127.0.0.1.")


def require_free(port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise PortInUse(
                f"Port {port} of 127.0.0.1 cannot be used ({error.strerror}). "
                "Stop the program that has it, or ask for another port."
            ) from error
