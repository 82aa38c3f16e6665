"""``STRICT``: heartbeats are writes. That a deposed leader answers none is in `test_partition`."""

from __future__ import annotations

import pytest

from distlock import zk_lock
from distlock.session.registry import session_for
from distlock_chaos.server import Server, ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions
from tests.kit.tools import PATIENCE

KEY = "key"
T = 4.0

pytestmark = pytest.mark.usefixtures("tree")


def zxid(server: Server) -> int:
    """How many writes a server has seen."""
    (line,) = [line for line in server.command("srvr").splitlines() if line.startswith("Zxid")]
    return int(line.rpartition("0x")[2], 16)


@pytest.mark.parametrize("strict", [True, False])
def test_heartbeats_are_writes_if_asked_for(
    own_zookeeper: ZooKeeper, set_options: SetOptions, requests: list[str], strict: bool
) -> None:
    (server,) = own_zookeeper.servers  # on which nobody else writes
    set_options(SESSION_TIMEOUT=T, STRICT=strict)
    kind = "Transaction" if strict else "Sync"
    with zk_lock(KEY) as hold:
        eventually(lambda: "GetData" in requests, PATIENCE)  # the watch of the own node
        eventually(lambda: "SetData" in requests, PATIENCE)  # how long it waited
        session = session_for()
        session.call(session.read, hold.path, key=KEY)
        requests.clear()
        before = zxid(server)
        eventually(lambda: requests.count(kind) >= 4, PATIENCE)
        beats, written = requests.count(kind), zxid(server) - before
        hold.check()
        hold.verify()
    assert set(requests) == {kind, "GetData", "Delete"}
    assert (beats - 1 <= written) if strict else (written == 0)
