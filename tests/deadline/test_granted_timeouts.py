"""The servers grant longer session timeouts after a restart; the sessions keep their first one.

A server grants a timeout to a connection. The leader after the next counts with what it granted
when the session began (`ZooKeeperServer.processConnectRequest`, `DataTree.sessionsWithTimeouts`).
"""

from __future__ import annotations

import pytest
from pytest_django import Settings

from distlock import LockLost, zk_lock
from distlock.session.registry import close_sessions
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from distlock_chaos.site import change
from tests.kit.helpers import eventually
from tests.kit.losses import Loss, noted
from tests.kit.tools import PATIENCE, MakeOwner, await_connection

KEY = "key"


@pytest.mark.deep
def test_a_holder_that_is_cut_off_knows_its_loss_by_the_first_timeout(
    settings: Settings, make_owner: MakeOwner, losses: list[Loss]
) -> None:
    rival, lock = make_owner(), zk_lock(KEY, using="other")
    with ZooKeeper() as zookeeper, TcpProxy("127.0.0.1", zookeeper.servers[0].port) as link:
        (server,) = zookeeper.servers
        options = {"HOSTS": zookeeper.hosts, "SESSION_TIMEOUT": 10, "CONNECT_TIMEOUT": PATIENCE}
        settings.DISTLOCK = {"default": {**options, "HOSTS": link.address}, "other": options}
        session, other = await_connection(), await_connection("other")
        session_id, connection = session.id, session.connection
        server.stop()
        change(server, minSessionTimeout="60000", maxSessionTimeout="60000")
        server.start()
        eventually(lambda: session.connected and session.connection > connection, PATIENCE)
        assert session.id == session_id
        with pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
            granted = rival.submit(lock.acquire, timeout=60)
            eventually(lambda: other.connected and not hold.at_risk, PATIENCE)
            link.cut()
            server.kill()
            server.start()
            when_granted = noted(granted)()
            assert hold.lost
        assert losses[0].at < when_granted
        rival.now(lock.release)
        close_sessions()
