"""A server that is replaced by moving its name, as managed services do, keeps its connections."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from distlock import LockUnavailable, zk_lock
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, await_connection
from tests.redis.test_grace import await_copy

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

NAME = "locks.test"


class Names:
    """The address that a name has now."""

    def __init__(self, server: Redis) -> None:
        self.server = server
        self._resolve = socket.getaddrinfo

    def look_up(self, host: str, port: Any, *args: Any, **how: Any) -> Any:
        if host == NAME:
            host, port = "127.0.0.1", self.server.port
        return self._resolve(host, port, *args, **how)


def grants() -> bool:
    try:
        with zk_lock("key", timeout=0.5) as hold:
            hold.verify()
    except LockUnavailable:
        return False
    return True


def test_a_demoted_server_is_left_for_the_one_that_has_its_name(
    use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Redis() as first, Redis("--replicaof", "127.0.0.1", str(first.port)) as second:
        await_copy(second)
        names = Names(first)
        monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
        use(f"redis://{NAME}:6379/0")
        assert grants()
        session = await_connection()
        before = session.id
        second.ask("REPLICAOF", "NO", "ONE")
        names.server = second
        first.ask("REPLICAOF", "127.0.0.1", second.port)
        eventually(grants, PATIENCE, "a grant of the new primary")
        assert session.server == second.address
        assert session.id == before
