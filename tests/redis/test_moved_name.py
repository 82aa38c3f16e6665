"""A server that is replaced by moving its name, as managed services do, keeps its connections."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distlock import LockLost, LockUnavailable, zk_lock
from distlock.locks.revocation import break_node
from distlock.session.registry import close_sessions
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, MakeOwner, await_connection, settle
from tests.redis.test_bad_input import lock_nodes
from tests.redis.test_grace import await_copy

NAME = "locks.test"


class Names:
    """Two servers, and the one of them that has the name now."""

    def __init__(self, first: Redis, second: Redis) -> None:
        self.first, self.second = first, second
        self.server = first
        self._resolve = socket.getaddrinfo

    def look_up(self, host: str, port: Any, *args: Any, **how: Any) -> Any:
        if host == NAME:
            host, port = "127.0.0.1", self.server.port
        return self._resolve(host, port, *args, **how)

    def move(self) -> None:
        """Let the second server take the place of the first."""
        self.second.ask("REPLICAOF", "NO", "ONE")
        self.server = self.second
        self.first.ask("REPLICAOF", "127.0.0.1", self.second.port)


def grants() -> bool:
    try:
        with zk_lock("key", timeout=0.5) as hold:
            hold.verify()
    except LockUnavailable:
        return False
    return True


@pytest.fixture
def servers(use: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    """A primary that has the name, and its replica."""
    with Redis() as first, Redis("--replicaof", "127.0.0.1", str(first.port)) as second:
        await_copy(second)
        names = Names(first, second)
        monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
        use(f"redis://{NAME}:6379/0")
        yield names
        close_sessions()


def test_a_demoted_server_is_left_for_the_one_that_has_its_name(servers: Names) -> None:
    assert grants()
    session = await_connection()
    before = session.id
    written = servers.first.ask("INFO", "replication")["master_repl_offset"]
    # Redis copies after its answer: without its last change, the session would end.
    eventually(
        lambda: servers.second.ask("INFO", "replication")["slave_repl_offset"] >= written, PATIENCE
    )
    servers.move()
    eventually(grants, PATIENCE, "a grant of the new primary")
    assert session.server == servers.second.address
    assert session.id == before


@pytest.mark.parametrize("leaves", [True, False], ids=["left the block", "in the block"])
def test_a_break_that_a_failover_undoes_is_repeated(
    servers: Names, make_owner: MakeOwner, leaves: bool
) -> None:
    holder, lock = make_owner(), zk_lock("key")
    hold = holder.now(lock.__enter__)
    session = await_connection()
    before = session.id
    eventually(lambda: lock_nodes(servers.second), PATIENCE, "a replicated lock")
    servers.first.ask("ACL", "SETUSER", "default", "-psync", "-sync")
    servers.first.ask("CLIENT", "KILL", "TYPE", "replica")
    broken = lock.holder()
    assert broken is not None
    assert break_node(broken, using="other")
    eventually(lambda: hold.lost, PATIENCE, "news of the break")

    def leave() -> None:
        with pytest.raises(LockLost):
            holder.now(lock.release)

    if leaves:
        leave()
    settle(session)
    assert lock_nodes(servers.second)
    servers.move()
    eventually(grants, PATIENCE, "a lock of the new primary")
    assert session.id == before
    if not leaves:
        leave()
