"""``STRICT``: heartbeats are writes. That a deposed leader answers none is in `test_partition`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distlock import LockLost, zk_lock
from tests.kit.helpers import eventually
from tests.kit.losses import Loss, SetOptions, pass_time
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection

if TYPE_CHECKING:
    from distlock_chaos.proxy import TcpProxy
    from distlock_chaos.server import Server, ZooKeeper

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
        requests.clear()
        before = zxid(server)
        eventually(lambda: requests.count(kind) >= 4, PATIENCE)
        beats, written = requests.count(kind), zxid(server) - before
        hold.check()
        hold.verify()
    assert set(requests) == {kind, "GetData", "Delete"}
    assert (beats - 1 <= written) if strict else (written == 0)


def test_a_strict_hold_outlives_several_timeouts_and_a_short_cut(
    tree: Tree,
    broken_link: TcpProxy,
    set_options: SetOptions,
    losses: list[Loss],
    make_owner: MakeOwner,
) -> None:
    set_options(SESSION_TIMEOUT=T, STRICT=True)
    await_connection()
    rival, rivals = make_owner(), zk_lock(KEY, using="other")
    with zk_lock(KEY) as hold:
        granted = rival.submit(rivals.acquire, timeout=PATIENCE)
        tree.await_line(KEY, 2)
        broken_link.drop()
        await_connection()
        pass_time(T)
        hold.check()
        assert not granted.done()
    assert granted.result(PATIENCE)
    assert not losses
    rival.now(rivals.release)


def test_a_strict_hold_is_lost_in_a_black_hole(
    broken_link: TcpProxy, set_options: SetOptions, losses: list[Loss]
) -> None:
    set_options(SESSION_TIMEOUT=T, STRICT=True)
    await_connection()
    with pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
        broken_link.black_hole()
        eventually(lambda: losses, PATIENCE)
        assert hold.lost
