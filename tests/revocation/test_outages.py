"""Requests to leave when there is no connection, or no permission."""

from __future__ import annotations

import pytest
from kazoo.security import make_acl

from distlock import LockUnavailable, revoke, zk_lock
from distlock.keys.znodes import REVOKE
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions
from tests.kit.tools import PATIENCE, Tree
from tests.revocation.conftest import Asked

pytestmark = pytest.mark.usefixtures("tree")


@pytest.fixture
def link(broken_link: TcpProxy, set_options: SetOptions) -> TcpProxy:
    """The link of "default", whose sessions outlive what is done to it."""
    set_options(SESSION_TIMEOUT=20, CONNECT_TIMEOUT=PATIENCE)
    return broken_link


def cut(link: TcpProxy) -> None:
    """Break the link of "default" and wait until its session knows."""
    link.cut()
    eventually(lambda: not session_for().connected, PATIENCE, "a lost connection")


def heal(link: TcpProxy) -> None:
    link.pass_through()
    eventually(lambda: session_for().connected, PATIENCE, "a connection")


@pytest.mark.deep
@pytest.mark.usefixtures("link", "holder")
def test_what_could_not_be_asked_in_time_is_not_asked_later(link: TcpProxy, tree: Tree) -> None:
    (theirs,) = zk_lock("key").participants()
    cut(link)
    with pytest.raises(LockUnavailable):
        revoke(theirs)
    heal(link)
    holder = zk_lock("key").holder()  # read on the connection that the request waited for
    assert holder is not None
    assert holder.path == theirs.path
    assert tree.client.get(theirs.path)[0] != REVOKE


def test_asking_takes_the_permission_to_write(tree: Tree, asked: Asked) -> None:
    with zk_lock("key", on_revoke=asked) as hold:
        tree.client.set_acls(hold.path, [make_acl("world", "anyone", read=True)])
        with pytest.raises(LockUnavailable, match="no permission"):
            revoke(zk_lock("key").holder(), using="other")
    assert not asked
