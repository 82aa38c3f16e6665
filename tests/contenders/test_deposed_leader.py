"""A leader that was frozen and deposed wakes up, and is asked for a node whose reply was lost.

ZOOKEEPER-1675, -2136: it answers a ``sync`` without asking the others, and does not know the node.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from distlock import LockUnavailable, zk_lock
from distlock.session.registry import close_sessions, session_for
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import PATIENCE, Tree, await_connection, forgets_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from distlock_chaos.server import Server, ZooKeeper
    from tests.kit.tools import MakeOwner

KEY = "key"
#: Long enough for an election on a busy machine.
LONG = 30.0


@pytest.fixture
def links(
    zookeeper_ensemble: ZooKeeper, settings: Settings, namespace: str
) -> Iterator[dict[Server, TcpProxy]]:
    """A proxy before each server; the session tries no other addresses."""
    with ExitStack() as stack:
        links = {
            server: stack.enter_context(TcpProxy("127.0.0.1", server.port))
            for server in zookeeper_ensemble.servers
        }
        hosts = ",".join(link.address for link in links.values())
        default: dict[str, Any] = {"HOSTS": hosts, "NAMESPACE": namespace, "SESSION_TIMEOUT": 20}
        settings.DISTLOCK = {"default": default}
        yield links
        close_sessions()


@pytest.mark.deep
def test_a_node_whose_reply_was_lost_is_found_though_a_deposed_leader_is_asked_first(
    zookeeper_ensemble: ZooKeeper,
    links: dict[Server, TcpProxy],
    namespace: str,
    make_owner: MakeOwner,
) -> None:
    leader = zookeeper_ensemble.leader()
    others = [server for server in zookeeper_ensemble.servers if server is not leader]
    links[leader].cut()  # what the session has seen, the leader has, too
    with zk_lock(KEY):
        pass
    session = await_connection()
    forgets_all(session)
    leader.pause()
    try:
        eventually(lambda: any(server.mode == "leader" for server in others), LONG)
        await_connection()
        for server in others:
            links[server].black_hole("to_client")
        attempt = make_owner().submit(zk_lock(KEY).acquire, timeout=1)
        with raw_client(",".join(server.address for server in others)) as client:
            tree = Tree(client, namespace)
            tree.await_line(KEY, 1)
            with pytest.raises(LockUnavailable):
                attempt.result(PATIENCE)
            for server in others:
                links[server].cut()
            links[leader].restore()
            leader.resume()
            eventually(lambda: session.connected or not tree.line(KEY), LONG)
            for server in others:
                links[server].restore()
            tree.await_line(KEY, 0)
        forgets_all(session_for())
    finally:
        leader.resume()
