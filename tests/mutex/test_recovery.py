"""Lost replies, outages and expired sessions: no node is lost, none is believed in (promises 1, 4).

CURATOR-190, -206, -498, -604 and -678; orphans, ghosts of late creates, watches forgotten on
disconnect, and true expiries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from distlock import LockLost, LockUnavailable, zk_lock
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import (
    PATIENCE,
    MakeOwner,
    Owner,
    Tree,
    expire,
    forgets_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock_chaos.server import ZooKeeper

pytestmark = pytest.mark.usefixtures("tree")

KEY = "key"


@pytest.fixture
def connected(tree: Tree, patient_link: TcpProxy) -> TcpProxy:
    """The link that breaks, in use, with parents of the lock that the server does not remove."""
    with zk_lock(KEY):
        tree.client.create(f"{tree.path(KEY)}/keeps-the-parents", b"")
    tree.await_line(KEY, 0)
    return patient_link


def cut_and_heal(link: TcpProxy) -> None:
    link.cut()
    eventually(lambda: not session_for().connected)
    link.pass_through()


# --- lost replies --------------------------------------------------------------------------------


@pytest.mark.parametrize("heal", [TcpProxy.pass_through, cut_and_heal])
def test_the_node_of_a_caller_that_gave_up_before_the_reply_is_deleted(
    tree: Tree, connected: TcpProxy, heal: Callable[[TcpProxy], None]
) -> None:
    session_id = session_for().id
    connected.black_hole("to_client")
    with pytest.raises(LockUnavailable):
        zk_lock(KEY).acquire(timeout=0.1)
    tree.await_line(KEY, 1)
    heal(connected)
    tree.await_line(KEY, 0)
    assert session_for().id == session_id  # deleted, and not gone with its session
    forgets_all(session_for())


@pytest.mark.parametrize("break_link", [TcpProxy.cut, TcpProxy.black_hole])
def test_a_release_in_an_outage_is_done_after_it(
    tree: Tree, connected: TcpProxy, make_owner: MakeOwner, break_link: Callable[[TcpProxy], None]
) -> None:
    lock, rival = zk_lock(KEY), make_owner()
    lock.acquire()
    session = session_for()
    session_id = session.id
    granted = rival.submit(zk_lock(KEY, using="other").acquire, timeout=PATIENCE)
    tree.await_line(KEY, 2)
    break_link(connected)
    lock.release()
    assert len(tree.line(KEY)) == 2
    connected.pass_through()
    assert granted.result(PATIENCE)
    assert session.id == session_id
    rival.now(zk_lock(KEY, using="other").release)
    forgets_all(session)


# --- a cut within the session --------------------------------------------------------------------


def test_a_release_that_happens_while_the_waiter_is_cut_off_is_noticed(
    tree: Tree, connected: TcpProxy, holder: Owner, make_owner: MakeOwner
) -> None:
    waiter = make_owner()
    granted = waiter.submit(zk_lock(KEY).acquire, timeout=PATIENCE)
    line = tree.await_line(KEY, 2)
    connected.cut()
    eventually(lambda: not session_for().connected)
    holder.now(zk_lock(KEY, using="other").release)
    assert tree.await_line(KEY, 1) == line[1:]
    connected.pass_through()
    assert granted.result(PATIENCE)
    waiter.now(zk_lock(KEY).release)


# --- true expiry ---------------------------------------------------------------------------------


def test_the_next_in_line_of_the_same_process_is_granted_with_a_higher_token(
    tree: Tree, zookeeper: ZooKeeper, make_owner: MakeOwner
) -> None:
    def take() -> int:
        with zk_lock(KEY, timeout=PATIENCE) as hold:
            return hold.token

    with pytest.raises(LockLost), zk_lock(KEY) as hold:  # noqa: PT012
        token = make_owner().submit(take)
        tree.await_line(KEY, 2)
        expire(zookeeper.hosts, session_for())
        assert token.result(PATIENCE) > hold.token
        assert hold.lost  # by the time that another has been inside


# A list may go on showing the node of an expired session (a lagging server). Here a node of the
# very same name, owned by a session that is not ours, stands in for it, as long as the test wants.


# --- a server that is restarted ------------------------------------------------------------------


def test_waiters_keep_their_places_over_a_restart_of_the_server(
    own_zookeeper: ZooKeeper, make_owner: MakeOwner, namespace: str
) -> None:
    (server,) = own_zookeeper.servers
    with raw_client(own_zookeeper.hosts) as client:
        own_tree = Tree(client, namespace)
        lock, served = zk_lock(KEY), []
        lock.acquire()
        session_id = session_for().id

        def wait(number: int) -> None:
            with zk_lock(KEY, timeout=PATIENCE, using="other"):
                served.append(number)

        waiters = []
        for number in range(3):
            waiters.append(make_owner().submit(wait, number))
            own_tree.await_line(KEY, number + 2)
        line = own_tree.line(KEY)
        server.stop()
        server.start()
        eventually(lambda: client.connected and own_tree.line(KEY) == line, PATIENCE)
        lock.release()
        for waiter in waiters:
            waiter.result(PATIENCE)
        assert served == [0, 1, 2]
        assert session_for().id == session_id
