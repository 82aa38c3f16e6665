"""Waiters through faults of the link and of a single server: who keeps a place, and until when.

No grant on an earlier session's node (CURATOR-604); watches are forgotten at a disconnect; a new
session must not start the time anew. An ensemble's faults are in `test_ensemble`.
"""

from __future__ import annotations

import pytest

from distlock import LockUnavailable, zk_lock
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.losses import await_waiter, beneficiaries
from tests.kit.stopwatch import Stopwatch
from tests.kit.tools import (
    OVERRUN,
    PATIENCE,
    MakeOwner,
    Owner,
    Tree,
    await_connection,
    expire,
    forgets_all,
    within,
)

KEY = "key"

pytestmark = pytest.mark.usefixtures("tree")


def test_a_new_session_goes_to_the_end_of_the_line_within_the_same_time(
    tree: Tree, zookeeper: ZooKeeper, holder: Owner, make_owner: MakeOwner
) -> None:
    first, second, holders = make_owner(), make_owner(), zk_lock(KEY, using="other")
    with within(6 + OVERRUN):
        firsts = first.submit(zk_lock(KEY).acquire, timeout=6)
        line = tree.await_line(KEY, 2)
        seconds = second.submit(zk_lock(KEY, using="other").acquire, timeout=PATIENCE)
        *_, seconds_node = tree.await_line(KEY, 3)
        expire(zookeeper.hosts, session_for())
        eventually(lambda: len(new := tree.line(KEY)) == 3 and new[1] == seconds_node)
        assert tree.line(KEY)[0] == line[0]
        assert not firsts.done()
        holder.now(holders.release)
        assert seconds.result(PATIENCE)
        assert firsts.result(PATIENCE) is False
    second.now(zk_lock(KEY, using="other").release)
    assert beneficiaries(session_for()) == 0


@pytest.mark.parametrize("fault", ["cut", "black_hole"])
def test_a_waiter_whose_time_ends_in_an_outage_is_told_so_at_its_deadline(
    tree: Tree, broken_link: TcpProxy, holder: Owner, make_owner: MakeOwner, fault: str
) -> None:
    waiter, session = make_owner(), await_connection()
    with Stopwatch() as watch:
        granted = waiter.submit(zk_lock(KEY).acquire, timeout=4)
        await_waiter(tree, KEY)
        getattr(broken_link, fault)()
        try:
            assert granted.result(PATIENCE) is False
            assert fault == "black_hole"  # of which nobody may know yet
        except LockUnavailable:
            pass
    assert watch.elapsed > 3.9
    assert watch.taken < 4 + OVERRUN
    assert beneficiaries(session) == 0
    broken_link.pass_through()
    tree.await_line(KEY, 1)
    assert holder.now(lambda: zk_lock(KEY, using="other").held)
    forgets_all(session)
