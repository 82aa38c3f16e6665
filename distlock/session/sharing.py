"""Lends the session to users, as kazoo's client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.conf.rules import REDIS

from .registry import session_for

if TYPE_CHECKING:
    from distlock.engine.kazoo import KazooClient


def kazoo_client(using: str = "default") -> KazooClient:
    """Return the ``KazooClient`` of this process's session, connected.

    Nodes, watches and recipes of this client live and die with the same session as the locks. You
    need not start it, and you cannot stop it: it closes when the process ends. Its callbacks run on
    threads of their own, and may block. Paths are relative to the chroot of ``HOSTS``. New nodes
    have the ACL of the settings.

    In a forked child, call this function again: the parent's client raises
    ``ConnectionClosedError`` there.

    :param using: the alias in ``DISTLOCK``
    :raises LockUnavailable: there is no connection within ``CONNECT_TIMEOUT``
    :raises RuntimeError: the alias uses Redis
    """
    session = session_for(using)
    if session.conf.engine == REDIS:
        raise RuntimeError(
            f"DISTLOCK[{using!r}] uses Redis, for which there is no client of kazoo. Name an alias "
            "of ZooKeeper in `using`, or use redis-py."
        )
    kazoo = session.kazoo
    if kazoo is None or not kazoo.connected:
        kazoo = session.call(session.lend, timeout=session.conf.connect_timeout, key="")
    return kazoo
