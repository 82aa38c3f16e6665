"""Revocation when something breaks: a cut, an expired session, no server.

Watches are gone after a disconnect, so they are set again.
"""

from __future__ import annotations

import pytest
from kazoo.security import make_acl

from distlock import LockUnavailable, revoke, zk_lock
from distlock.keys.znodes import REVOKE
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions, watchers
from tests.kit.tools import PATIENCE, MakeOwner, Owner, Tree, expire
from tests.revocation.conftest import Asked

pytestmark = pytest.mark.usefixtures("tree")


@pytest.fixture
def link(broken_link: TcpProxy, set_options: SetOptions) -> TcpProxy:
    """The link of "default", whose sessions outlive what is done to it."""
    set_options(SESSION_TIMEOUT=20, CONNECT_TIMEOUT=PATIENCE)
    return broken_link


def ask_holder() -> bool:
    """Ask whoever holds "key" to leave, over a session whose link is whole."""
    return revoke(zk_lock("key", using="other").holder(), using="other")


def cut(link: TcpProxy) -> None:
    """Break the link of "default" and wait until its session knows."""
    link.cut()
    eventually(lambda: not session_for().connected, PATIENCE, "a lost connection")


def heal(link: TcpProxy) -> None:
    link.pass_through()
    eventually(lambda: session_for().connected, PATIENCE, "a connection")


def test_a_request_of_the_time_without_a_connection_is_heard_after_it(
    link: TcpProxy, asked: Asked
) -> None:
    with zk_lock("key", on_revoke=asked):
        cut(link)
        assert ask_holder()
        assert not asked
        heal(link)
        asked.times(1)


def test_a_waiter_whose_session_expired_is_asked_on_its_new_node(
    tree: Tree, zookeeper: ZooKeeper, holder: Owner, make_owner: MakeOwner, asked: Asked
) -> None:
    waiter, lock = make_owner(), zk_lock("key", on_revoke=asked)
    granted = waiter.submit(lock.acquire, timeout=PATIENCE * 2)
    _, before = tree.await_line("key", 2)
    assert revoke(zk_lock("key").participants()[1])
    asked.times(1)
    expire(zookeeper.hosts, session_for())
    eventually(lambda: before not in tree.line("key"), PATIENCE, "an expired session")
    _, after = tree.await_line("key", 2)
    path = f"{tree.path('key')}/{after}"
    eventually(lambda: watchers(tree, path), PATIENCE, "a watch on the new node")
    assert revoke(zk_lock("key").participants()[1])
    asked.times(2)
    holder.now(zk_lock("key", using="other").release)
    assert granted.result(PATIENCE)
    waiter.now(lock.release)


@pytest.mark.deep
@pytest.mark.usefixtures("link", "holder")
def test_what_could_not_be_asked_in_time_is_not_asked_later(link: TcpProxy, tree: Tree) -> None:
    (theirs,) = zk_lock("key").participants()
    cut(link)
    with pytest.raises(LockUnavailable):
        revoke(theirs)
    heal(link)
    assert zk_lock("key").holder() == theirs  # read on the connection that the request waited for
    assert tree.client.get(theirs.path)[0] != REVOKE


def test_asking_takes_the_permission_to_write(tree: Tree, asked: Asked) -> None:
    with zk_lock("key", on_revoke=asked) as hold:
        tree.client.set_acls(hold.path, [make_acl("world", "anyone", read=True)])
        with pytest.raises(LockUnavailable, match="no permission"):
            revoke(zk_lock("key").holder(), using="other")
    assert not asked
