"""A leader whose clock is set gives no live lease away, and keeps none that has ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from distlock import zk_lease
from distlock.lease.persistent import LeaseHold, sweep
from distlock.session.registry import close_sessions, session_for
from distlock_chaos.clock import set_clock
from distlock_chaos.install import ServerNotInstalled
from distlock_chaos.server import Server
from distlock_chaos.site import Site
from tests.kit.helpers import eventually, spawn_python
from tests.kit.losses import said, tell
from tests.kit.tools import PATIENCE, Tree, await_connection
from tests.lease.tools import LONG, SHORT, await_end, owner_of

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("two_sessions")]

#: More than any lease here lasts, in seconds.
STEP = 2 * LONG


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Site]:
    """A server whose clock can be set, in place of the shared one."""
    try:
        with Site(stepping_clock=True) as servers:
            yield servers
    except ServerNotInstalled as error:
        pytest.skip(str(error))


@pytest.fixture
def server(zookeeper: Site) -> Iterator[Server]:
    """The server, with the right time at first."""
    (server,) = zookeeper.servers
    set_clock(server.folder, 0)
    yield server
    set_clock(server.folder, 0)


# --- forward -------------------------------------------------------------------------------------


def take(ttl: float) -> LeaseHold:
    """Take the lease "key" as "me", in this process."""
    lease = zk_lease("key", ttl, owner="me")
    assert lease.acquire()
    return lease.renew()


FRESH = """
import sys
from tests.kit.tools import set_up
set_up(sys.argv[1], sys.argv[2], CONNECT_TIMEOUT=15)
from distlock import zk_lease
from distlock.lease.persistent import sweep
lease = zk_lease("key", 600, owner="fresh")
for line in sys.stdin:
    print(eval(line))
"""


def test_a_process_that_begins_after_a_step_takes_no_live_lease_of_this_machine(
    server: Server, zookeeper: Site, tree: Tree
) -> None:
    hold = take(LONG)
    set_clock(server.folder, STEP)
    with spawn_python(FRESH, zookeeper.hosts, tree.namespace) as process:
        for order, answer in (
            ("sweep().removed", "0"),
            ("lease.holder().owner_id", "me"),
            ("lease.acquire(timeout=0)", "False"),
        ):
            tell(process, order)
            assert said(process) == answer
    hold.check()


# --- back ----------------------------------------------------------------------------------------


def test_who_has_looked_before_a_step_back_takes_what_has_ended(server: Server, tree: Tree) -> None:
    yours = zk_lease("key", LONG, owner="you", using="other")
    take(SHORT)
    assert yours.holder() is not None
    await_end(yours)
    set_clock(server.folder, -STEP)
    assert yours.holder() is None
    assert sweep("other").removed == 1
    take(SHORT)
    await_end(yours)
    set_clock(server.folder, -2 * STEP)
    assert yours.acquire(timeout=0)
    assert owner_of(tree, "key") == "you"


# --- another leader ------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [STEP, -STEP], ids=["ahead", "behind"])
def test_another_leader_with_another_clock_changes_nothing(
    own_zookeeper_with_clock: Site, ahead: float
) -> None:
    ensemble = own_zookeeper_with_clock
    await_connection()
    hold = take(LONG if ahead > 0 else 2)
    yours = zk_lease("key", LONG, owner="you", using="other")
    assert not yours.acquire(timeout=0)
    for follower in ensemble.followers():
        set_clock(follower.folder, ahead)
    ensemble.leader().kill()
    eventually(lambda: len([one for one in ensemble.servers if one.mode]) == 2, 2 * PATIENCE)
    for using in ("default", "other"):
        eventually(lambda alias=using: session_for(alias).connected, 2 * PATIENCE)  # type: ignore[misc]
    if ahead > 0:
        assert not yours.acquire(timeout=0)
        hold.check()
    else:
        assert yours.acquire(timeout=PATIENCE)
        assert hold.lost


@pytest.fixture
def own_zookeeper_with_clock(two_sessions: Settings) -> Iterator[Site]:
    """Three servers whose clocks can be set, for one test."""
    try:
        with Site(3, stepping_clock=True) as servers:
            default = {**two_sessions.DISTLOCK["default"], "HOSTS": servers.hosts}
            two_sessions.DISTLOCK = {"default": default, "other": default}
            yield servers
            close_sessions()
    except ServerNotInstalled as error:
        pytest.skip(str(error))


def test_who_has_looked_before_a_step_takes_no_live_lease(server: Server) -> None:
    hold = take(LONG)
    yours = zk_lease("key", LONG, owner="you", using="other")
    assert not yours.acquire(timeout=0)
    set_clock(server.folder, STEP)
    assert not yours.acquire(timeout=0)
    assert yours.holder() is not None
    assert sweep("other").removed == 0
    hold.check()
    hold.verify()
