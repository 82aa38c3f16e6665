"""Tools of the session tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient

from distlock.engine.reply import Done
from distlock.session.session import Session
from distlock_chaos.server import ZooKeeper

#: Makes a connected session with the given settings.
MakeSession = Callable[..., Session]


def ephemeral_node(one: Session) -> tuple[str, Any]:
    """Create the node of a contender and return its path and stat."""
    one.call(one.create_containers, one.root, timeout=20, key="")

    def create(done: Done) -> None:
        one.create_ephemeral(f"{one.root}/n-", b"", done, lambda *_: None, sequential=True)

    path, stat = one.call(create, timeout=20, key="")
    return path, stat


def expire(one: Session, zookeeper: ZooKeeper) -> None:
    """End a session on the server: a second client takes it over and closes it."""
    thief = KazooClient(zookeeper.hosts, client_id=one._client.credentials)
    thief.start(timeout=10)
    thief.stop()
    thief.close()
