"""Tools of the tests of faults."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from distlock import Hold, LockUnavailable, zk_lock
from distlock_chaos.proxy import TcpProxy
from tests.kit.services import Postgres

#: Seconds.
SESSION_TIMEOUT: Final = 3


@contextmanager
def linked(server: Postgres) -> Iterator[tuple[TcpProxy, str]]:
    """A link to a server, and the ``HOSTS`` by way of it."""
    with TcpProxy("127.0.0.1", server.port) as link:
        yield link, server.hosts.replace(f"127.0.0.1:{server.port}", link.address)


def grants() -> bool:
    """Return whether the alias "other" gets the lock."""
    try:
        return zk_lock("key", using="other").acquire()
    except LockUnavailable:
        return False


def assert_told_before_a_rival_comes(hold: Hold) -> float:
    """Return after how long the alias "other" has the lock, in seconds."""
    begun_at = believed_until = time.monotonic()
    while not grants():
        if not hold.lost:
            believed_until = time.monotonic()
        assert time.monotonic() < begun_at + 10 * SESSION_TIMEOUT
    assert hold.lost
    granted_at = time.monotonic()
    assert believed_until < granted_at
    return granted_at - begun_at
